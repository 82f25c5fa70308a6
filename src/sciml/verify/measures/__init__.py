"""Measures of errors, orders and invariants."""
