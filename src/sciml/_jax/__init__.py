"""Additions to JAX and differences between its versions: varying axes, loops, barriers, marks, checkpoint levels."""
