"""Adjoints that integrate the adjoint equation backwards."""
