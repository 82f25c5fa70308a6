"""A standing search for wrong numbers: programs drawn at random, compared with a plain loop of JAX."""
