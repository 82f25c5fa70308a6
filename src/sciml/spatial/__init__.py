r"""Space: grids, boundary conditions and operators on fields.

A field is a plain array whose last axes are those of the grid; the geometry lives in a `Grid`, and what happens at its
sides in `Boundaries`.

Grids
    `Grid`; `OrthogonalGrid` of faces such as `clustered_faces` and `stretched_faces`, in `Cartesian`, `Polar`,
    `Axisymmetric` or `Spherical` coordinates
Boundary conditions
    `Boundaries`, of `Periodic`, `Dirichlet`, `Neumann`, `Robin`, `Extrapolate`, or an `AbstractWall` of your own;
    around an `Immersed` body
Finite differences
    `Laplacian`, `VariableLaplacian`, `AnisotropicLaplacian`, `Biharmonic`; `Derivative`, `Gradient`, `Divergence`,
    `Curl`; `Upwind`
Staggered grids, for flow that cannot be compressed
    `StaggeredGradient` and `StaggeredDivergence`; `StaggeredVelocity` between sides (`NoSlip`, `FreeSlip`,
    `VelocityInlet`, `PressureOutlet`), its `Projection`, and what it carries (`Central`, `LimitedUpwind`)
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
    `NoSlipWall`); in variables (`Componentwise`, `Characteristic`), with a `PositivityLimiter`

Elliptic problems
    `Poisson` and `Helmholtz` by transforms; `EllipticOperator` with `solve_elliptic`, and the solvers `FastTransform`
    and `Multigrid` (`VCycle`, `WCycle`, `FCycle`; `Galerkin`, `Resistors`; `RedBlack`, `Lines`,
    `ChebyshevSmoother`); `ImplicitDiffusion` for the implicit part of a time step

Every operator is a module, made of a grid and its boundary and called with a field. It knows its `radius`,
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

from ._abstract_grid import AbstractGrid as AbstractGrid
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
from ._diffusion import (
    AnisotropicLaplacian as AnisotropicLaplacian,
    VariableLaplacian as VariableLaplacian,
    arithmetic_mean as arithmetic_mean,
    harmonic_mean as harmonic_mean,
)
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
from ._stencil import AbstractStencil as AbstractStencil
from ._upwind import Upwind as Upwind
from .elliptic import (
    AbstractCoarsening as AbstractCoarsening,
    AbstractCycle as AbstractCycle,
    AbstractSmoother as AbstractSmoother,
    ChebyshevSmoother as ChebyshevSmoother,
    EllipticOperator as EllipticOperator,
    FastTransform as FastTransform,
    FCycle as FCycle,
    Galerkin as Galerkin,
    Helmholtz as Helmholtz,
    Lines as Lines,
    Multigrid as Multigrid,
    Poisson as Poisson,
    RedBlack as RedBlack,
    Resistors as Resistors,
    VCycle as VCycle,
    WCycle as WCycle,
    default_solver as default_solver,
    solve_elliptic as solve_elliptic,
)
from .finite_volumes import (
    HLL as HLL,
    HLLC as HLLC,
    PPM as PPM,
    TENO5 as TENO5,
    WENO3 as WENO3,
    WENO5 as WENO5,
    WENO5Z as WENO5Z,
    AbstractFlux as AbstractFlux,
    AbstractReconstruction as AbstractReconstruction,
    AbstractSide as AbstractSide,
    AbstractSides as AbstractSides,
    AbstractVariables as AbstractVariables,
    Characteristic as Characteristic,
    Componentwise as Componentwise,
    Constant as Constant,
    FiniteVolumes as FiniteVolumes,
    Inflow as Inflow,
    LaxWendroff as LaxWendroff,
    MovingWall as MovingWall,
    Muscl as Muscl,
    NoSlipWall as NoSlipWall,
    Outflow as Outflow,
    PositivityLimiter as PositivityLimiter,
    Reflecting as Reflecting,
    Roe as Roe,
    Rusanov as Rusanov,
    Sides as Sides,
    minmod as minmod,
    monotonized_central as monotonized_central,
    van_leer as van_leer,
)
from .geometry import (
    AbstractCoordinates as AbstractCoordinates,
    Axisymmetric as Axisymmetric,
    Cartesian as Cartesian,
    Immersed as Immersed,
    OrthogonalGrid as OrthogonalGrid,
    Polar as Polar,
    Spherical as Spherical,
    clustered_faces as clustered_faces,
    stretched_faces as stretched_faces,
)
from .staggered import (
    AbstractFlowSide as AbstractFlowSide,
    AbstractTransport as AbstractTransport,
    Central as Central,
    FreeSlip as FreeSlip,
    LimitedUpwind as LimitedUpwind,
    NoSlip as NoSlip,
    PressureOutlet as PressureOutlet,
    Projection as Projection,
    StaggeredDivergence as StaggeredDivergence,
    StaggeredGradient as StaggeredGradient,
    StaggeredVelocity as StaggeredVelocity,
    VelocityInlet as VelocityInlet,
    faces as faces,
)
