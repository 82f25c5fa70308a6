"""Explicit Runge-Kutta methods, including stabilised ones."""
