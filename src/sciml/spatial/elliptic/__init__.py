"""Elliptic problems: by fast transforms where the boundary separates, by multigrid everywhere else."""

from ._coarsening import AbstractCoarsening as AbstractCoarsening
from ._cycles import AbstractCycle as AbstractCycle, FCycle as FCycle, VCycle as VCycle, WCycle as WCycle
from ._galerkin import Galerkin as Galerkin
from ._multigrid import Multigrid as Multigrid
from ._operator import EllipticOperator as EllipticOperator
from ._poisson import Helmholtz as Helmholtz, Poisson as Poisson
from ._resistors import Resistors as Resistors
from ._smoothers import (
    AbstractSmoother as AbstractSmoother,
    ChebyshevSmoother as ChebyshevSmoother,
    Lines as Lines,
    RedBlack as RedBlack,
)
from ._solve import default_solver as default_solver, solve_elliptic as solve_elliptic
from ._transform_solver import FastTransform as FastTransform
