r"""Space: grids, boundary conditions and operators on fields.

A field is a plain array whose last axes are the axes of the grid; the geometry is in a `Grid`, and the conditions at
its sides in `Boundaries`.

Grids
    `Grid`; `OrthogonalGrid` of faces such as `clustered_faces` and `stretched_faces`, in Cartesian, `Polar`,
    `Axisymmetric` or `Spherical` coordinates
Boundary conditions
    `Boundaries`, of `Periodic`, `Dirichlet`, `Neumann`, `Robin`, `Extrapolate`, or an `AbstractWall` of your own;
    around an `Immersed` body
Finite differences
    `Laplacian`, `VariableLaplacian`, `AnisotropicLaplacian`, `Biharmonic`; `Derivative`, `Gradient`, `Divergence`,
    `Curl`; `Upwind`
Staggered grids, for flow that cannot be compressed
    `StaggeredGradient`, with its `divergence`; sides (`NoSlip`, `FreeSlip`, `VelocityInlet`, `PressureOutlet`); how
    velocities carry fields (`Central`, `LimitedUpwind`)
Spectral
    `Spectral` for Fourier, sine and cosine modes, `Chebyshev`
Receivers and sources
    `Points`
Noise, for `sciml.Stochastic`
    `WhiteNoise`; `ColouredNoise` of a `GaussianSpectrum`, a `MaternSpectrum`, a `PowerLawSpectrum`, or an
    `AbstractSpectrum` of your own
Fields to start from
    `gaussian_random_field`, `random_fourier_series`, `random_spots`, `pulse`, `random_vortices`

Finite volumes, for conservation laws
    `FiniteVolumes`, of a reconstruction (`Constant`, `Muscl`, `PPM`, `WENO3`, `WENO5`, `WENO5Z`, `TENO5`), a flux
    (`Rusanov`, `HLL`, `HLLC`, `Roe`, `LaxWendroff`) and sides (`Inflow`, `Outflow`, `Reflecting`, `MovingWall`,
    `NoSlipWall`); in `Characteristic` variables, with a `PositivityLimiter`

Elliptic problems
    `Poisson` and `Helmholtz` by transforms; `EllipticOperator` with `solve_elliptic`, and the solvers `FastTransform`
    and `Multigrid`, with a smoother (`RedBlack`, `Lines`, `ChebyshevSmoother`); `ImplicitDiffusion` for the implicit
    part of a time step

Every operator is a module, made of a grid and its boundary and called with a field. It has its `radius`,
`spectral_radius`, `symbol` and `sparsity`.

Example:
    ```python
    import jax.numpy as jnp
    from sciml.spatial import Dirichlet, Grid, Laplacian

    grid = Grid(64)
    (x,) = grid.centers
    u = jnp.sin(jnp.pi * x)
    laplacian = Laplacian(grid, Dirichlet(0.0))
    assert jnp.allclose(laplacian(u), -(jnp.pi**2) * u, rtol=1e-2)
    ```
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from ._boundaries import Boundaries as Boundaries
from ._chebyshev import Chebyshev as Chebyshev
from ._conditions import (
    AbstractWall as AbstractWall,
    Dirichlet as Dirichlet,
    Extrapolate as Extrapolate,
    Neumann as Neumann,
    Periodic as Periodic,
    Robin as Robin,
)
from ._derivatives import Curl as Curl, Derivative as Derivative, Divergence as Divergence, Gradient as Gradient
from ._diffusion import AnisotropicLaplacian as AnisotropicLaplacian, VariableLaplacian as VariableLaplacian
from ._grid import Grid as Grid
from ._implicit import ImplicitDiffusion as ImplicitDiffusion
from ._initial import (
    gaussian_random_field as gaussian_random_field,
    pulse as pulse,
    random_fourier_series as random_fourier_series,
    random_spots as random_spots,
    random_vortices as random_vortices,
)
from ._laplacian import Biharmonic as Biharmonic, Laplacian as Laplacian
from ._noise import (
    AbstractSpectrum as AbstractSpectrum,
    ColouredNoise as ColouredNoise,
    GaussianSpectrum as GaussianSpectrum,
    MaternSpectrum as MaternSpectrum,
    PowerLawSpectrum as PowerLawSpectrum,
    WhiteNoise as WhiteNoise,
)
from ._points import Points as Points
from ._spectral import Spectral as Spectral
from ._upwind import Upwind as Upwind
from .elliptic._multigrid import Multigrid as Multigrid
from .elliptic._operator import EllipticOperator as EllipticOperator
from .elliptic._poisson import FastTransform as FastTransform, Helmholtz as Helmholtz, Poisson as Poisson
from .elliptic._smoothers import ChebyshevSmoother as ChebyshevSmoother, Lines as Lines, RedBlack as RedBlack
from .elliptic._solve import solve_elliptic as solve_elliptic
from .finite_volumes._finite_volumes import FiniteVolumes as FiniteVolumes
from .finite_volumes._fluxes import (
    HLL as HLL,
    HLLC as HLLC,
    AbstractFlux as AbstractFlux,
    LaxWendroff as LaxWendroff,
    Roe as Roe,
    Rusanov as Rusanov,
)
from .finite_volumes._positivity import PositivityLimiter as PositivityLimiter
from .finite_volumes._reconstruction import (
    PPM as PPM,
    TENO5 as TENO5,
    WENO3 as WENO3,
    WENO5 as WENO5,
    WENO5Z as WENO5Z,
    AbstractReconstruction as AbstractReconstruction,
    Constant as Constant,
    Muscl as Muscl,
)
from .finite_volumes._sides import (
    Inflow as Inflow,
    MovingWall as MovingWall,
    NoSlipWall as NoSlipWall,
    Outflow as Outflow,
    Reflecting as Reflecting,
    Sides as Sides,
)
from .finite_volumes._variables import Characteristic as Characteristic
from .geometry._clustered import clustered_faces as clustered_faces, stretched_faces as stretched_faces
from .geometry._coordinates import Axisymmetric as Axisymmetric, Polar as Polar, Spherical as Spherical
from .geometry._immersed import Immersed as Immersed
from .geometry._orthogonal_grid import OrthogonalGrid as OrthogonalGrid
from .staggered._flow_sides import (
    FreeSlip as FreeSlip,
    NoSlip as NoSlip,
    PressureOutlet as PressureOutlet,
    VelocityInlet as VelocityInlet,
)
from .staggered._gradient import StaggeredGradient as StaggeredGradient
from .staggered._transport import Central as Central, LimitedUpwind as LimitedUpwind

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
