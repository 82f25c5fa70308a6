"""Step sizes: by the error, by stability, and together with the devices that share a state."""
