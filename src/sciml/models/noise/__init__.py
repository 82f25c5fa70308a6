"""Processes with noise."""
