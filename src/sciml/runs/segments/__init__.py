"""What one compiled call of a long run does."""
