"""Step sizes."""
