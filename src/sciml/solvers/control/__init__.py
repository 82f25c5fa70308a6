"""Step sizes: by the error, by stability, and the same on all devices that share a state."""
