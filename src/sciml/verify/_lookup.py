"""Problems and known results by name."""

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from .problems._exact import (
    cosine_growth,
    exponential_decay,
    harmonic_oscillator,
    linear_system,
    logistic,
    polynomial,
    prothero_robinson,
    pytree_state,
    two_compartment,
)
from .problems._physics import (
    ginzburg_landau_wave,
    kdv_soliton,
    kdv_two_solitons,
    kepler,
    schroedinger_level,
    schroedinger_soliton,
    taylor_green_vortex,
)
from .problems._problem import Problem
from .problems._references import (
    arenstorf,
    brusselator,
    chemical_akzo_nobel,
    hires,
    lorenz63,
    lotka_volterra,
    oregonator,
    pollution,
    robertson,
    van_der_pol,
    van_der_pol_unscaled,
)

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


_PROBLEMS = {
    make.__name__: (kind, make)
    for kind, some in (("exact", EXACT_PROBLEMS), ("waves", WAVE_PROBLEMS), ("published", REFERENCE_PROBLEMS))
    for make in some
}

_REFERENCES = {  # by module, which is loaded when one of its functions is looked up
    "measures._invariants": "kdv_phase_shifts kuramoto_sivashinsky_production reflection_level",
    "problems._physics": "oscillator_state coherent_state taylor_green_flow beltrami_flow",
    "solutions._control": "brachistochrone_time bryson_denham_cost goddard_height",
    "solutions._dam_break": "riemann_shallow_water dam_break",
    "solutions._events": "bounce_times bouncing_ball firing_period mackey_glass_onset",
    "solutions._fields": "burgers_series burgers_cole_hopf fisher_kpp_front gray_scott_steady_states heat_kernel",
    "solutions._gas": "isentropic_vortex riemann_euler sedov",
    "solutions._patterns": (
        "allen_cahn_front allen_cahn_radius fisher_kpp_speed phase_wall cahn_hilliard_growth "
        "swift_hohenberg_growth turing_growth turing_onset nagumo_front front_position"
    ),
    "solutions._processes": (
        "ornstein_uhlenbeck_density keller_segel_growth gibbs_density birth_death_law one_step_law "
        "ornstein_uhlenbeck_moments geometric_brownian_moments"
    ),
    "solutions._vector_waves": (
        "rayleigh_speed rayleigh_wave cavity_frequency cavity_mode electromagnetic_plane_wave layered_medium"
    ),
    "solutions._viscous_flows": (
        "cavity_table poiseuille couette cylinder_table kovasznay rayleigh_benard_growth rayleigh_benard_onset"
    ),
    "solutions._waves": (
        "helmholtz_green sound_of_a_point dalembert spherical_wave wave_kernel leapfrog_frequency "
        "klein_gordon_wave sine_gordon_breather sine_gordon_kink"
    ),
}
_MODULES = {name: module for module, names in _REFERENCES.items() for name in names.split()}

FORMER = {
    **{name: f"verify.problem('{name}')" for name in _PROBLEMS},
    **{name: f"verify.reference('{name}', ...)" for name in _MODULES},
    **{f"{kind}_PROBLEMS": "verify.problem_names(...)" for kind in ("EXACT", "WAVE", "REFERENCE")},
    "finite_difference_gradient": "verify.check_gradient",
}
"""How names that `sciml.verify` had are written now."""


def problem(name: str, *args: Any, **options: Any) -> Problem:
    """Returns an initial value problem whose answer is known.

    | answer | problems |
    |---|---|
    | exact at every time | `exponential_decay`, `linear_system`, `harmonic_oscillator`, `logistic`, `kepler`, `two_compartment`, `cosine_growth`, `polynomial`, `prothero_robinson`, `pytree_state` |
    | exact at every time, of a periodic field | `kdv_soliton`, `kdv_two_solitons`, `schroedinger_soliton`, `ginzburg_landau_wave`, `schroedinger_level`, `taylor_green_vortex` |
    | published at `t1`, not stiff | `lorenz63`, `arenstorf`, `brusselator`, `lotka_volterra` |
    | published at `t1`, stiff | `robertson`, `hires`, `oregonator`, `van_der_pol`, `van_der_pol_unscaled`, `pollution`, `chemical_akzo_nobel` |

    Args:
        name: The name of the problem.
        args: The arguments of the problem, such as the rate of `exponential_decay`.
        options: Its options; `dtype` is one of all problems.

    Raises:
        ValueError: If there is no such problem.

    Example:
        ```python
        from sciml import verify

        decay = verify.problem("exponential_decay", rate=2.0)
        assert decay.error(decay.solution(decay.t1)) == 0.0
        ```
    """  # noqa: E501
    if name not in _PROBLEMS:
        raise ValueError(_unknown("problem", name, _PROBLEMS))
    return _PROBLEMS[name][1](*args, **options)


def problem_names(kind: str | None = None) -> tuple[str, ...]:
    """Returns the names of all problems, to test a method with each of them.

    Args:
        kind: `"exact"` for problems with an exact solution, `"waves"` for periodic fields with an exact solution,
            `"published"` for problems with a published end value; None for all.

    Raises:
        ValueError: If there is no such kind.

    Example:
        ```python
        from sciml import verify

        for name in verify.problem_names("published"):
            assert verify.problem(name).reference is not None
        ```
    """
    if kind not in ("exact", "waves", "published", None):
        raise ValueError(f"`kind` must be 'exact', 'waves', 'published' or None, but got {kind!r}.")
    return tuple(name for name, (of, _) in _PROBLEMS.items() if kind in (of, None))


def reference(name: str, *args: Any, **options: Any) -> Any:
    """Returns a known result: an exact solution, a rate of growth, a published table.

    | of | functions |
    |---|---|
    | diffusion, fronts, patterns | `burgers_cole_hopf`, `burgers_series`, `heat_kernel`, `allen_cahn_front`, `allen_cahn_radius`, `fisher_kpp_front`, `fisher_kpp_speed`, `front_position`, `nagumo_front`, `phase_wall`, `gray_scott_steady_states`, `turing_growth`, `turing_onset`, `cahn_hilliard_growth`, `swift_hohenberg_growth`, `keller_segel_growth` |
    | waves | `dalembert`, `spherical_wave`, `wave_kernel`, `sound_of_a_point`, `klein_gordon_wave`, `sine_gordon_breather`, `sine_gordon_kink`, `kdv_phase_shifts`, `leapfrog_frequency`, `reflection_level` |
    | light and elastic waves | `cavity_frequency`, `cavity_mode`, `electromagnetic_plane_wave`, `layered_medium`, `rayleigh_speed`, `rayleigh_wave`, `helmholtz_green` |
    | quantum mechanics | `oscillator_state`, `coherent_state` |
    | flows with shocks | `riemann_euler`, `riemann_shallow_water`, `dam_break`, `isentropic_vortex`, `sedov` |
    | incompressible flow | `taylor_green_flow`, `beltrami_flow`, `kovasznay`, `poiseuille`, `couette`, `cavity_table`, `cylinder_table`, `rayleigh_benard_onset`, `rayleigh_benard_growth` |
    | events and delays | `bounce_times`, `bouncing_ball`, `firing_period`, `mackey_glass_onset` |
    | noise | `ornstein_uhlenbeck_moments`, `ornstein_uhlenbeck_density`, `geometric_brownian_moments`, `gibbs_density`, `birth_death_law`, `one_step_law` |
    | optimal control | `brachistochrone_time`, `bryson_denham_cost`, `goddard_height` |
    | chaos | `kuramoto_sivashinsky_production` |

    Args:
        name: The name of the function that computes the result.
        args: The arguments of the function, which the reference lists below.
        options: Its options.

    Raises:
        ValueError: If there is no such function.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u = verify.reference("sine_gordon_kink", jnp.linspace(-5.0, 5.0, 11), 0.0)
        assert u.shape == (11,)
        ```
    """  # noqa: E501
    if name not in _MODULES:
        raise ValueError(_unknown("reference", name, _MODULES))
    function = getattr(importlib.import_module(f".{_MODULES[name]}", __package__), name)
    return function(*args, **options)


def _unknown(kind: str, name: str, names: Iterable[str]) -> str:
    other = "reference" if kind == "problem" else "problem"
    if name in (_MODULES if kind == "problem" else _PROBLEMS):
        return f"{name!r} is not a {kind}: write `verify.{other}({name!r})`."
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"`help(sciml.verify.{kind})` lists them."
    return f"there is no {kind} {name!r}: {hint}"
