"""Reaction, diffusion, drift, phases and patterns on a grid."""
