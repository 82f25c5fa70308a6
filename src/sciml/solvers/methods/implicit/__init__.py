"""Methods for stiff equations: they solve for their stages."""
