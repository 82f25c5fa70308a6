"""Exact and published solutions, as functions of place and time."""
