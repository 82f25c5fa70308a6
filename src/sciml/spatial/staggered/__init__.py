"""Staggered grids: values at the centres of cells, velocities at their faces, and flow that cannot be compressed."""

from ._flow_sides import (
    AbstractFlowSide as AbstractFlowSide,
    FreeSlip as FreeSlip,
    NoSlip as NoSlip,
    PressureOutlet as PressureOutlet,
    VelocityInlet as VelocityInlet,
)
from ._gradient import (
    StaggeredDivergence as StaggeredDivergence,
    StaggeredGradient as StaggeredGradient,
    faces as faces,
)
from ._projection import Projection as Projection
from ._transport import (
    AbstractTransport as AbstractTransport,
    Central as Central,
    LimitedUpwind as LimitedUpwind,
)
from ._velocity import StaggeredVelocity as StaggeredVelocity
