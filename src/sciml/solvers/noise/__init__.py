"""Brownian motion as a function of a key and of time."""
