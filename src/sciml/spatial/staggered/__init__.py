"""Staggered grids: values at the centres of cells, velocities at their faces, and flow that cannot be compressed."""
