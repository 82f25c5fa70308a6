"""Who takes part: grids, samples and generators of members."""
