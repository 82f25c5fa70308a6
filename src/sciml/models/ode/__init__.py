"""Ordinary differential equations of few unknowns, with and without events, and one with a delay."""
