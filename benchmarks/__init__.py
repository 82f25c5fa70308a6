"""Benchmarks: `python -m benchmarks` prints one table. See README.md for what is compared and how."""

import jax

# to wake a thread for a call takes longer than a small solve, sciml's or a peer's
jax.config.update("jax_cpu_enable_async_dispatch", False)
