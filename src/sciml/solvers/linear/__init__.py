"""Linear systems of implicit steps: sparsity of Jacobians, and factorisations."""
