"""Finite volumes: fluxes through the faces of cells, each face once, in one pass over memory.

- `FluxDivergence`: the computation, written for one cell and for one face.
- `choose`: what computes it, XLA or a kernel, and why.
- `divergence`: the pass.
"""

from ._divergence import FluxDivergence as FluxDivergence, GhostLayers as GhostLayers
from ._select import (
    VolumesSelection as VolumesSelection,
    choose as choose,
    divergence as divergence,
    refused as refused,
)
