"""One-step methods for equations with noise."""
