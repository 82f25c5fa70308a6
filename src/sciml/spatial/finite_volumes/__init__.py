"""Finite volumes: reconstructions, fluxes, sides, and the divergence that they make."""
