"""Implicit methods for stiff equations."""
