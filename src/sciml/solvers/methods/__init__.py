"""One-step methods, each with the diffrax solver that names it."""
