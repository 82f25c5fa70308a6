"""Many members over many devices.

- `mesh`: the devices, as named axes.
- `ensemble`: one function over all members, inside a computation: differentiable, under `jax.jit`.
- `sweep`: one function over any number of members, driven from Python: fixed blocks, progress, a status per member.
- `grid`: the members of a Cartesian grid of parameters.
- `Domain`: a field split over devices: ghost layers from neighbours, sums, Fourier transforms.
- `initialize`: joins this process to the others of a job.
- `SweepResult`, `Grid`: what `sweep` and `grid` return.

A member is one setting of the parameters. Members never talk to each other, so `ensemble` and `sweep`
do not communicate between devices while members run, and one that fails leaves the others as they are.
A member that is too large for one device is a `Domain`, whose devices talk to their neighbours.
"""

from ._domain import Domain as Domain
from ._ensemble import ensemble as ensemble
from ._grid import Grid as Grid, grid as grid
from ._initialize import initialize as initialize
from ._mesh import mesh as mesh
from ._result import SweepResult as SweepResult
from ._sweep import sweep as sweep
