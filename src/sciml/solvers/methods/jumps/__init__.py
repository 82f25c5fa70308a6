"""Stochastic simulation algorithms for single molecules."""
