"""Benchmarks: `python -m benchmarks` prints one table. See README.md for what is compared and how."""
