"""Flows: incompressible ones, and conservation laws by finite volumes."""
