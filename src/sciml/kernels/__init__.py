"""Kernels: formulations of the same arithmetic that a machine runs faster, each beside its reference.

- `kernels.lanes`: a model written for one member, run over many.
"""

from . import lanes as lanes
