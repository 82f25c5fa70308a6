"""Elliptic problems: by fast transforms where the boundary separates, by multigrid everywhere else."""
