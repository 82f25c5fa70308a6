"""Equilibria and boundary value problems, solved without time stepping."""
