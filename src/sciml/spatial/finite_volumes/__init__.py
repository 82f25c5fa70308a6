"""Finite volumes: reconstructions, fluxes, sides, and the divergence that they make."""

from ._finite_volumes import FiniteVolumes as FiniteVolumes
from ._fluxes import (
    HLL as HLL,
    HLLC as HLLC,
    AbstractFlux as AbstractFlux,
    LaxWendroff as LaxWendroff,
    Roe as Roe,
    Rusanov as Rusanov,
)
from ._limiters import (
    minmod as minmod,
    monotonized_central as monotonized_central,
    van_leer as van_leer,
)
from ._muscl import Constant as Constant, Muscl as Muscl
from ._positivity import PositivityLimiter as PositivityLimiter
from ._ppm import PPM as PPM
from ._reconstruction import AbstractReconstruction as AbstractReconstruction
from ._sides import (
    AbstractSide as AbstractSide,
    AbstractSides as AbstractSides,
    Inflow as Inflow,
    MovingWall as MovingWall,
    NoSlipWall as NoSlipWall,
    Outflow as Outflow,
    Reflecting as Reflecting,
    Sides as Sides,
)
from ._variables import (
    AbstractVariables as AbstractVariables,
    Characteristic as Characteristic,
    Componentwise as Componentwise,
)
from ._weno import (
    TENO5 as TENO5,
    WENO3 as WENO3,
    WENO5 as WENO5,
    WENO5Z as WENO5Z,
)
