"""The problems in two tuples, for tests that run over all of them."""

from collections.abc import Callable

from ._compartments import two_compartment
from ._exact import exponential_decay, harmonic_oscillator, linear_system, logistic
from ._kepler import kepler
from ._nonstiff_references import arenstorf, brusselator, lorenz63, lotka_volterra
from ._problem import Problem
from ._pytree import pytree_state
from ._stiff_reactions import chemical_akzo_nobel, pollution
from ._stiff_references import hires, oregonator, robertson, van_der_pol, van_der_pol_unscaled
from ._time_dependent import cosine_growth, polynomial, prothero_robinson
from ._trapped import schroedinger_level
from ._vortices import taylor_green_vortex
from ._waves import ginzburg_landau_wave, kdv_soliton, kdv_two_solitons, schroedinger_soliton

EXACT_PROBLEMS: tuple[Callable[..., Problem], ...] = (
    exponential_decay,
    linear_system,
    harmonic_oscillator,
    logistic,
    kepler,
    two_compartment,
    cosine_growth,
    polynomial,
    prothero_robinson,
    pytree_state,
)
"""Functions that make a problem with an exact solution at every time."""

REFERENCE_PROBLEMS: tuple[Callable[..., Problem], ...] = (
    lorenz63,
    arenstorf,
    brusselator,
    lotka_volterra,
    robertson,
    hires,
    oregonator,
    van_der_pol,
    van_der_pol_unscaled,
    pollution,
    chemical_akzo_nobel,
)
"""Functions that make a problem with a published end value."""

WAVE_PROBLEMS: tuple[Callable[..., Problem], ...] = (
    kdv_soliton,
    kdv_two_solitons,
    schroedinger_soliton,
    ginzburg_landau_wave,
    taylor_green_vortex,
    schroedinger_level,
)
"""Functions that make a problem of a periodic field with an exact solution at every time."""
