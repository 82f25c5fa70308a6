"""Symplectic and other methods for equations of second order and for pairs of fields."""
