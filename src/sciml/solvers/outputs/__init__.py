"""Outputs of a solve: states at given times, every step, functions of states, and dense output."""
