"""Derivatives of solves, over the registry of adjoints."""
