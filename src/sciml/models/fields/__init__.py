"""Fields on a grid: reaction, diffusion, drift, phases and patterns."""
