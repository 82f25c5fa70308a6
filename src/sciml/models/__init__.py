r"""Models by family, with default parameters.

A model is a callable PyTree, `model(t, y, args) -> dy/dt`, and its parameters are its leaves: `grad`
with respect to the model, `vmap` over models and a sweep over parameters need nothing further.

Biology and epidemics
    `FitzHughNagumo`, `Logistic`, `LotkaVolterra`, `SIR`
Events and doses, with methods that return the `sciml.Event` or the `sciml.Schedule`
    `BouncingBall`, `IntegrateAndFire`, `TwoCompartment`
Noise, for `sciml.solve(..., key=...)`
    `GeometricBrownian`, `OrnsteinUhlenbeck`; of single molecules `BirthDeath`, `Schloegl`
Delays
    `MackeyGlass`
Chemistry
    `Brusselator`, `HIRES`, `Oregonator`, `Robertson`, `Schnakenberg`
    `Brusselator`, `HIRES`, `Oregonator`, `Robertson`; any other as a `ReactionNetwork`, of text, matrices or a file,
    with `Arrhenius` rates; `read_sbml` and `read_antimony`: what others wrote
Mechanics
    `HarmonicOscillator`, `Kepler`, `Pendulum`, `RestrictedThreeBody`, `VanDerPol`,
    `VanDerPolScaled`
Chaos
    `Lorenz63`, `Lorenz96`
Waves and patterns, periodic, for exponential methods
    `GinzburgLandau`, `IntegralKuramotoSivashinsky`, `KortewegDeVries`, `KuramotoSivashinsky`, `NonlinearSchroedinger`
Flow, periodic, for exponential methods
    `Vorticity`, with `kolmogorov_forcing`; `NavierStokes3D`, with `SteadyPower`
Flow between walls and around bodies, on staggered grids
    `IncompressibleFlow`, of a `FlowState`, with what it carries (`Carried`), what acts on it (`BodyForce`,
    `Buoyancy`, `Obstacle`) and the viscosity of eddies (`Smagorinsky`); `ImplicitFriction` of it
Phases, patterns and condensates, between periodic sides or walls, for exponential methods
    `CahnHilliard`, `GrossPitaevskii`, `SwiftHohenberg`
Fields: partial differential equations, on a grid of `sciml.spatial`
    `Acoustic`, `Advection`, `AdvectionDiffusion`, `AllenCahn`, `Burgers`, `Darcy`, `Diffusion`, `FisherKPP`,
    `FokkerPlanck`, `GrayScott`, `KellerSegel`, `KleinGordon`, `ReactionDiffusion`, `Wave`.
    Those with diffusion are `sciml.AbstractSplit`s. Sources of sound: `PointSources` of a `Ricker` or a `Sampled`
    signal
Waves, on staggered grids with absorbing layers
    `Maxwell`, in media such as `Drude`, `Lorentz` and `Debye`; `ElasticWave`; both driven by
    `FieldSource`s. Of one frequency: `TimeHarmonicWave`. See `Acoustic` for sound
Conservation laws, by finite volumes, with shocks
    `CompressibleNavierStokes`, `Euler`, `ShallowWater`; `InviscidBurgers`, `Traffic`, `Transport`
Anything else that is linear
    `Linear`
Learnt
    `sciml.models.neural`: neural ODEs and their kin; `sciml.models.sparse`: equations of few terms, found in data
In files
    `save`, `load`: any model

Precision. A vector field returns the dtype of its state, whatever the dtype of its parameters, also
under strict dtype promotion:

- `sciml.parameter`, the converter of every field, makes a Python number a *weakly typed* array: a
  leaf that `grad`, `jit`, `vmap` and `eqx.tree_at` see, and that takes the precision of the state
  it meets, as the Python number would.
- Weak typing is lost when a parameter is drawn at random, loaded from a file or combined with a
  strongly typed array. So the vector fields here also call `sciml.with_dtype(self, y.dtype)`, and
  gradients come back in the parameter's own dtype.

Your own model needs the second line only if its parameters and its states may differ in precision.

Example:
    ```python
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from sciml.models import LotkaVolterra

    y = jnp.array([33.96, 5.93], jnp.float32)
    model = LotkaVolterra(beta=0.03)
    assert model(0.0, y, None).dtype == jnp.float32  # also where the default is float64

    gradient = jax.grad(lambda m: m(0.0, y, None)[0])(model)  # a LotkaVolterra of derivatives
    assert jnp.allclose(gradient.alpha, 33.96)

    many = jax.vmap(lambda beta: eqx.tree_at(lambda m: m.beta, model, beta))(jnp.linspace(0.02, 0.03, 5))
    assert eqx.filter_vmap(lambda m: m(0.0, y, None))(many).shape == (5, 2)
    ```
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from . import neural as neural, sparse as sparse
from ._files import load as load, save as save
from ._processes import GeometricBrownian as GeometricBrownian, OrnsteinUhlenbeck as OrnsteinUhlenbeck
from .fields._advection import Advection as Advection, AdvectionDiffusion as AdvectionDiffusion, Burgers as Burgers
from .fields._diffusion import Darcy as Darcy, Diffusion as Diffusion
from .fields._fokker_planck import FokkerPlanck as FokkerPlanck
from .fields._patterns import (
    GinzburgLandau as GinzburgLandau,
    IntegralKuramotoSivashinsky as IntegralKuramotoSivashinsky,
    KuramotoSivashinsky as KuramotoSivashinsky,
    SwiftHohenberg as SwiftHohenberg,
)
from .fields._phases import AllenCahn as AllenCahn, CahnHilliard as CahnHilliard
from .fields._reaction_diffusion import (
    FisherKPP as FisherKPP,
    GrayScott as GrayScott,
    KellerSegel as KellerSegel,
    ReactionDiffusion as ReactionDiffusion,
)
from .flows._compressible_navier_stokes import CompressibleNavierStokes as CompressibleNavierStokes
from .flows._euler import Euler as Euler
from .flows._flow_forces import (
    AbstractEddyViscosity as AbstractEddyViscosity,
    AbstractFlowForce as AbstractFlowForce,
    BodyForce as BodyForce,
    Buoyancy as Buoyancy,
    Carried as Carried,
    Obstacle as Obstacle,
    Smagorinsky as Smagorinsky,
)
from .flows._incompressible_flow import (
    FlowState as FlowState,
    ImplicitFriction as ImplicitFriction,
    IncompressibleFlow as IncompressibleFlow,
)
from .flows._navier_stokes_3d import NavierStokes3D as NavierStokes3D, SteadyPower as SteadyPower
from .flows._scalar_laws import InviscidBurgers as InviscidBurgers, Traffic as Traffic, Transport as Transport
from .flows._shallow_water import ShallowWater as ShallowWater
from .flows._vorticity import Vorticity as Vorticity, kolmogorov_forcing as kolmogorov_forcing
from .networks._antimony import read_antimony as read_antimony
from .networks._arrhenius import Arrhenius as Arrhenius
from .networks._reaction_network import ReactionNetwork as ReactionNetwork
from .networks._read_sbml import read_sbml as read_sbml
from .ode._excitable import (
    FitzHughNagumo as FitzHughNagumo,
    IntegrateAndFire as IntegrateAndFire,
    VanDerPol as VanDerPol,
    VanDerPolScaled as VanDerPolScaled,
)
from .ode._mechanics import (
    BouncingBall as BouncingBall,
    HarmonicOscillator as HarmonicOscillator,
    Kepler as Kepler,
    Pendulum as Pendulum,
    RestrictedThreeBody as RestrictedThreeBody,
)
from .ode._populations import (
    SIR as SIR,
    Logistic as Logistic,
    LotkaVolterra as LotkaVolterra,
    MackeyGlass as MackeyGlass,
)
from .ode._systems import Linear as Linear, Lorenz63 as Lorenz63, Lorenz96 as Lorenz96
from .ode._two_compartment import TwoCompartment as TwoCompartment
from .reactions._concentrations import (
    HIRES as HIRES,
    Brusselator as Brusselator,
    Oregonator as Oregonator,
    Robertson as Robertson,
    Schnakenberg as Schnakenberg,
)
from .reactions._molecules import BirthDeath as BirthDeath, Schloegl as Schloegl
from .waves._acoustic import Acoustic as Acoustic, Sound as Sound
from .waves._dispersion import (
    AbstractDispersion as AbstractDispersion,
    Debye as Debye,
    Drude as Drude,
    Lorentz as Lorentz,
)
from .waves._dispersive import (
    GrossPitaevskii as GrossPitaevskii,
    KortewegDeVries as KortewegDeVries,
    NonlinearSchroedinger as NonlinearSchroedinger,
)
from .waves._elastic_wave import ElasticWave as ElasticWave
from .waves._field_source import FieldSource as FieldSource
from .waves._maxwell import Maxwell as Maxwell
from .waves._signals import PointSources as PointSources, Ricker as Ricker, Sampled as Sampled
from .waves._time_harmonic import TimeHarmonicWave as TimeHarmonicWave
from .waves._wave import KleinGordon as KleinGordon, Wave as Wave

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
