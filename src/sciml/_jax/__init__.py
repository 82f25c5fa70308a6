"""What JAX lacks or changes between versions: varying axes, loops, barriers, marks on values, checkpoint levels."""
