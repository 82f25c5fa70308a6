"""Checks of what an extension of the library promises."""
