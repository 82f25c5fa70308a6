"""Finite volumes: reconstructions, fluxes, sides, and their divergence."""
