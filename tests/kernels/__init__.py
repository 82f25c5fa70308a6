"""The kernels against their references."""
