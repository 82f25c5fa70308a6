"""Checks of extensions of the library."""
