"""Explicit Runge-Kutta methods, stabilised ones among them."""
