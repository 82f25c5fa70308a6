"""Linear systems of implicit steps: which entries a Jacobian can have, and how such a matrix is factorised."""
