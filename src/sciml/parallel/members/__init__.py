"""Members of ensembles: grids, samples and generators of members."""
