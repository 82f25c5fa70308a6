"""Problems with known answers and the measures that go with them, for tests, docs and users' models.

Problems with an exact solution at every time (`EXACT_PROBLEMS`)
    `exponential_decay`, `linear_system`, `harmonic_oscillator`, `logistic`, `kepler`,
    `two_compartment`, `cosine_growth`, `polynomial`, `prothero_robinson`, `pytree_state`
Waves with an exact solution, of semilinear models (`WAVE_PROBLEMS`)
    `kdv_soliton`, `kdv_two_solitons`, `schroedinger_soliton`, `ginzburg_landau_wave`, `schroedinger_level`,
    `taylor_green_vortex`
Problems with a published end value (`REFERENCE_PROBLEMS`)
    not stiff: `lorenz63`, `arenstorf`, `brusselator`, `lotka_volterra`;
    stiff: `robertson`, `hires`, `oregonator`, `van_der_pol`, `van_der_pol_unscaled`, `pollution`,
    `chemical_akzo_nobel`
Exact solutions of fields
    `burgers_cole_hopf`, `burgers_series`; `heat_kernel`; `dalembert`, `spherical_wave`, `wave_kernel`,
    `sound_of_a_point`;
    `allen_cahn_front`, `fisher_kpp_front`, `nagumo_front`, `phase_wall`; `gray_scott_steady_states`;
    `klein_gordon_wave`, `sine_gordon_breather`, `sine_gordon_kink`; `oscillator_state`, `coherent_state`
What is known with events, noise and delays
    `bounce_times`, `bouncing_ball`, `firing_period`; `ornstein_uhlenbeck_moments`, `geometric_brownian_moments`;
    `birth_death_law`, `one_step_law`; `mackey_glass_onset`
Exact solutions of flows with shocks, and of a smooth one
    `riemann_euler`; `riemann_shallow_water`, `dam_break`; `isentropic_vortex`; `sedov`
Flow that cannot be compressed
    `taylor_green_flow`, `beltrami_flow`, `kovasznay`, `poiseuille`, `couette`; `cavity_table`, `cylinder_table`;
    `rayleigh_benard_onset`, `rayleigh_benard_growth`
Light, elastic waves and waves of one frequency
    `cavity_frequency`, `cavity_mode`, `electromagnetic_plane_wave`; `layered_medium`; `rayleigh_speed`,
    `rayleigh_wave`; `helmholtz_green`; `reflection_level`
What is known without a formula for the solution
    `allen_cahn_radius`, `fisher_kpp_speed`, `kdv_phase_shifts`, `kuramoto_sivashinsky_production`,
    `leapfrog_frequency`; `cahn_hilliard_growth`, `swift_hohenberg_growth`, `turing_growth`
Solutions of your choice
    `manufactured`, `matching_conditions`, `gradient_of`, `laplacian_of`
Measures
    `observed_order`, `order_in_space`, `finite_difference_gradient`, `check_gradient`, `conserved`, `front_position`
Contracts of what you write yourself
    `check_stepper`, `check_adjoint`, `check_model`, `check_store`, `check_reduction`

Every problem is a function that makes a `Problem`, with the keyword `dtype`. The tuples hold
these functions, so that a test can be parametrised over them without making an array.

Example:
    ```python
    from sciml import verify

    for make in verify.EXACT_PROBLEMS:
        problem = make()
        assert problem.error(problem.solution(problem.t1)) == 0.0
    ```
"""

from .contracts._check_adjoint import check_adjoint as check_adjoint
from .contracts._check_model import check_model as check_model
from .contracts._check_reduction import check_reduction as check_reduction
from .contracts._check_stepper import StepperReport as StepperReport, check_stepper as check_stepper
from .contracts._check_store import check_store as check_store
from .measures._conserved import conserved as conserved
from .measures._finite_difference import (
    check_gradient as check_gradient,
    finite_difference_gradient as finite_difference_gradient,
)
from .measures._invariants import (
    kdv_phase_shifts as kdv_phase_shifts,
    kuramoto_sivashinsky_production as kuramoto_sivashinsky_production,
)
from .measures._order import (
    ObservedOrder as ObservedOrder,
    observed_order as observed_order,
    order_in_space as order_in_space,
)
from .measures._reflection import reflection_level as reflection_level
from .problems._compartments import two_compartment as two_compartment
from .problems._exact import (
    exponential_decay as exponential_decay,
    harmonic_oscillator as harmonic_oscillator,
    linear_system as linear_system,
    logistic as logistic,
)
from .problems._kepler import kepler as kepler
from .problems._nonstiff_references import (
    arenstorf as arenstorf,
    brusselator as brusselator,
    lorenz63 as lorenz63,
    lotka_volterra as lotka_volterra,
)
from .problems._problem import Problem as Problem
from .problems._pytree import pytree_state as pytree_state
from .problems._registry import (
    EXACT_PROBLEMS as EXACT_PROBLEMS,
    REFERENCE_PROBLEMS as REFERENCE_PROBLEMS,
    WAVE_PROBLEMS as WAVE_PROBLEMS,
)
from .problems._stiff_reactions import chemical_akzo_nobel as chemical_akzo_nobel, pollution as pollution
from .problems._stiff_references import (
    hires as hires,
    oregonator as oregonator,
    robertson as robertson,
    van_der_pol as van_der_pol,
    van_der_pol_unscaled as van_der_pol_unscaled,
)
from .problems._time_dependent import (
    cosine_growth as cosine_growth,
    polynomial as polynomial,
    prothero_robinson as prothero_robinson,
)
from .problems._trapped import (
    coherent_state as coherent_state,
    oscillator_state as oscillator_state,
    schroedinger_level as schroedinger_level,
)
from .problems._vortices import (
    beltrami_flow as beltrami_flow,
    taylor_green_flow as taylor_green_flow,
    taylor_green_vortex as taylor_green_vortex,
)
from .problems._waves import (
    ginzburg_landau_wave as ginzburg_landau_wave,
    kdv_soliton as kdv_soliton,
    kdv_two_solitons as kdv_two_solitons,
    schroedinger_soliton as schroedinger_soliton,
)
from .solutions._bounces import bounce_times as bounce_times, bouncing_ball as bouncing_ball
from .solutions._burgers_series import burgers_series as burgers_series
from .solutions._cavity import CavityTable as CavityTable, cavity_table as cavity_table
from .solutions._channel_flows import couette as couette, poiseuille as poiseuille
from .solutions._counts import birth_death_law as birth_death_law, one_step_law as one_step_law
from .solutions._cylinder import CylinderTable as CylinderTable, cylinder_table as cylinder_table
from .solutions._dam_break import dam_break as dam_break, riemann_shallow_water as riemann_shallow_water
from .solutions._drift import (
    gibbs_density as gibbs_density,
    keller_segel_growth as keller_segel_growth,
    ornstein_uhlenbeck_density as ornstein_uhlenbeck_density,
)
from .solutions._elastic_surface import rayleigh_speed as rayleigh_speed, rayleigh_wave as rayleigh_wave
from .solutions._electromagnetic import (
    cavity_frequency as cavity_frequency,
    cavity_mode as cavity_mode,
    electromagnetic_plane_wave as electromagnetic_plane_wave,
)
from .solutions._fields import (
    burgers_cole_hopf as burgers_cole_hopf,
    fisher_kpp_front as fisher_kpp_front,
    gray_scott_steady_states as gray_scott_steady_states,
)
from .solutions._firing_period import firing_period as firing_period
from .solutions._fronts import (
    allen_cahn_front as allen_cahn_front,
    allen_cahn_radius as allen_cahn_radius,
    fisher_kpp_speed as fisher_kpp_speed,
    front_position as front_position,
)
from .solutions._heat_kernel import heat_kernel as heat_kernel
from .solutions._helmholtz_green import helmholtz_green as helmholtz_green
from .solutions._isentropic_vortex import isentropic_vortex as isentropic_vortex
from .solutions._klein_gordon import (
    klein_gordon_wave as klein_gordon_wave,
    sine_gordon_breather as sine_gordon_breather,
    sine_gordon_kink as sine_gordon_kink,
)
from .solutions._kovasznay import kovasznay as kovasznay
from .solutions._layered_medium import Fresnel as Fresnel, layered_medium as layered_medium
from .solutions._mackey_glass import mackey_glass_onset as mackey_glass_onset
from .solutions._manufactured import (
    gradient_of as gradient_of,
    laplacian_of as laplacian_of,
    manufactured as manufactured,
    matching_conditions as matching_conditions,
)
from .solutions._moments import (
    geometric_brownian_moments as geometric_brownian_moments,
    ornstein_uhlenbeck_moments as ornstein_uhlenbeck_moments,
)
from .solutions._phase_fields import (
    cahn_hilliard_growth as cahn_hilliard_growth,
    phase_wall as phase_wall,
    swift_hohenberg_growth as swift_hohenberg_growth,
)
from .solutions._rayleigh_benard import (
    rayleigh_benard_growth as rayleigh_benard_growth,
    rayleigh_benard_onset as rayleigh_benard_onset,
)
from .solutions._riemann_euler import riemann_euler as riemann_euler
from .solutions._sedov import sedov as sedov
from .solutions._sound import sound_of_a_point as sound_of_a_point
from .solutions._turing import (
    nagumo_front as nagumo_front,
    turing_growth as turing_growth,
    turing_onset as turing_onset,
)
from .solutions._wave_solutions import (
    dalembert as dalembert,
    leapfrog_frequency as leapfrog_frequency,
    spherical_wave as spherical_wave,
    wave_kernel as wave_kernel,
)
