"""Linear systems of implicit steps."""
