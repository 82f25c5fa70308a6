"""Staggered grids: values at cell centres, velocities at faces, and incompressible flow."""
