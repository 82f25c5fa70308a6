"""Grids whose cells differ, coordinates other than Cartesian ones, and bodies within a grid."""

from ._clustered import clustered_faces as clustered_faces, stretched_faces as stretched_faces
from ._coordinates import (
    AbstractCoordinates as AbstractCoordinates,
    Axisymmetric as Axisymmetric,
    Cartesian as Cartesian,
    Polar as Polar,
    Spherical as Spherical,
)
from ._immersed import Immersed as Immersed
from ._orthogonal_grid import OrthogonalGrid as OrthogonalGrid
