"""One-step methods, over the registry of methods."""
