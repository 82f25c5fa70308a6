"""Equilibria and boundary values: where an equation holds, without following it in time."""
