"""The adjoint that runs the steps of a reversible method backwards."""
