r"""Vector fields: one equation a file, with values that work.

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
    with `Arrhenius` rates; `read_sbml`: what others wrote in SBML, as an `SBMLModel`
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
    `Maxwell`, in media such as `Drude`, `Lorentz` and `Debye`; `ElasticWave`; both of `WaveFields`, driven by
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

A model of your own needs the second line only if its parameters and its states may differ in
precision.

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
from .fields._advection import Advection as Advection, AdvectionDiffusion as AdvectionDiffusion
from .fields._allen_cahn import AllenCahn as AllenCahn
from .fields._burgers import Burgers as Burgers
from .fields._cahn_hilliard import CahnHilliard as CahnHilliard
from .fields._darcy import Darcy as Darcy
from .fields._diffusion import Diffusion as Diffusion
from .fields._fisher_kpp import FisherKPP as FisherKPP
from .fields._fokker_planck import FokkerPlanck as FokkerPlanck
from .fields._ginzburg_landau import GinzburgLandau as GinzburgLandau
from .fields._gray_scott import GrayScott as GrayScott
from .fields._integral_kuramoto_sivashinsky import IntegralKuramotoSivashinsky as IntegralKuramotoSivashinsky
from .fields._keller_segel import KellerSegel as KellerSegel
from .fields._kuramoto_sivashinsky import KuramotoSivashinsky as KuramotoSivashinsky
from .fields._reaction_diffusion import ReactionDiffusion as ReactionDiffusion
from .fields._swift_hohenberg import SwiftHohenberg as SwiftHohenberg
from .flows._carried import Carried as Carried
from .flows._compressible_navier_stokes import CompressibleNavierStokes as CompressibleNavierStokes
from .flows._euler import Euler as Euler
from .flows._flow_forces import (
    AbstractFlowForce as AbstractFlowForce,
    BodyForce as BodyForce,
    Buoyancy as Buoyancy,
    Obstacle as Obstacle,
)
from .flows._implicit_friction import ImplicitFriction as ImplicitFriction
from .flows._incompressible_flow import FlowState as FlowState, IncompressibleFlow as IncompressibleFlow
from .flows._navier_stokes_3d import NavierStokes3D as NavierStokes3D, SteadyPower as SteadyPower
from .flows._scalar_laws import InviscidBurgers as InviscidBurgers, Traffic as Traffic, Transport as Transport
from .flows._shallow_water import ShallowWater as ShallowWater
from .flows._smagorinsky import AbstractEddyViscosity as AbstractEddyViscosity, Smagorinsky as Smagorinsky
from .flows._vorticity import Vorticity as Vorticity, kolmogorov_forcing as kolmogorov_forcing
from .networks._arrhenius import Arrhenius as Arrhenius
from .networks._reaction_network import ReactionNetwork as ReactionNetwork
from .networks._sbml_model import SBMLModel as SBMLModel, read_sbml as read_sbml
from .noise._geometric_brownian import GeometricBrownian as GeometricBrownian
from .noise._ornstein_uhlenbeck import OrnsteinUhlenbeck as OrnsteinUhlenbeck
from .ode._bouncing_ball import BouncingBall as BouncingBall
from .ode._fitzhugh_nagumo import FitzHughNagumo as FitzHughNagumo
from .ode._harmonic_oscillator import HarmonicOscillator as HarmonicOscillator
from .ode._integrate_and_fire import IntegrateAndFire as IntegrateAndFire
from .ode._kepler import Kepler as Kepler
from .ode._linear import Linear as Linear
from .ode._logistic import Logistic as Logistic
from .ode._lorenz63 import Lorenz63 as Lorenz63
from .ode._lorenz96 import Lorenz96 as Lorenz96
from .ode._lotka_volterra import LotkaVolterra as LotkaVolterra
from .ode._mackey_glass import MackeyGlass as MackeyGlass
from .ode._pendulum import Pendulum as Pendulum
from .ode._restricted_three_body import RestrictedThreeBody as RestrictedThreeBody
from .ode._sir import SIR as SIR
from .ode._two_compartment import TwoCompartment as TwoCompartment
from .ode._van_der_pol import VanDerPol as VanDerPol, VanDerPolScaled as VanDerPolScaled
from .reactions._birth_death import BirthDeath as BirthDeath
from .reactions._brusselator import Brusselator as Brusselator
from .reactions._hires import HIRES as HIRES
from .reactions._oregonator import Oregonator as Oregonator
from .reactions._robertson import Robertson as Robertson
from .reactions._schloegl import Schloegl as Schloegl
from .reactions._schnakenberg import Schnakenberg as Schnakenberg
from .waves._acoustic import Acoustic as Acoustic, Sound as Sound
from .waves._dispersion import (
    AbstractDispersion as AbstractDispersion,
    Debye as Debye,
    Drude as Drude,
    Lorentz as Lorentz,
)
from .waves._elastic_wave import ElasticWave as ElasticWave
from .waves._field_source import FieldSource as FieldSource
from .waves._gross_pitaevskii import GrossPitaevskii as GrossPitaevskii
from .waves._klein_gordon import KleinGordon as KleinGordon
from .waves._korteweg_de_vries import KortewegDeVries as KortewegDeVries
from .waves._maxwell import Maxwell as Maxwell
from .waves._nonlinear_schroedinger import NonlinearSchroedinger as NonlinearSchroedinger
from .waves._signals import PointSources as PointSources, Ricker as Ricker, Sampled as Sampled
from .waves._staggered_fields import WaveFields as WaveFields
from .waves._time_harmonic import TimeHarmonicWave as TimeHarmonicWave
from .waves._wave import Wave as Wave

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
