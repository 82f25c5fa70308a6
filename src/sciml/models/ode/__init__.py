"""Small ordinary differential equations, with and without events, and one with a delay."""
