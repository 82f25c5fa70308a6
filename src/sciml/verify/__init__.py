"""Problems with known answers and the measures that go with them, for tests, docs and users' models.

Problems with an exact solution at every time (`EXACT_PROBLEMS`)
    `exponential_decay`, `linear_system`, `harmonic_oscillator`, `logistic`, `kepler`,
    `cosine_growth`, `polynomial`, `prothero_robinson`, `pytree_state`
Waves with an exact solution, of semilinear models (`WAVE_PROBLEMS`)
    `kdv_soliton`, `kdv_two_solitons`, `schroedinger_soliton`, `ginzburg_landau_wave`, `taylor_green_vortex`
Problems with a published end value (`REFERENCE_PROBLEMS`)
    not stiff: `lorenz63`, `arenstorf`, `brusselator`, `lotka_volterra`;
    stiff: `robertson`, `hires`, `oregonator`, `van_der_pol`, `van_der_pol_unscaled`
Exact solutions of fields
    `burgers_cole_hopf`, `fisher_kpp_front`, `gray_scott_steady_states`, `dalembert`, `sound_of_a_point`
Measures
    `observed_order`, `order_in_space`, `finite_difference_gradient`, `check_gradient`, `conserved`

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

from ._conserved import conserved as conserved
from ._exact import (
    exponential_decay as exponential_decay,
    harmonic_oscillator as harmonic_oscillator,
    linear_system as linear_system,
    logistic as logistic,
)
from ._fields import (
    burgers_cole_hopf as burgers_cole_hopf,
    fisher_kpp_front as fisher_kpp_front,
    gray_scott_steady_states as gray_scott_steady_states,
)
from ._finite_difference import (
    check_gradient as check_gradient,
    finite_difference_gradient as finite_difference_gradient,
)
from ._kepler import kepler as kepler
from ._nonstiff_references import (
    arenstorf as arenstorf,
    brusselator as brusselator,
    lorenz63 as lorenz63,
    lotka_volterra as lotka_volterra,
)
from ._order import ObservedOrder as ObservedOrder, observed_order as observed_order
from ._order_in_space import order_in_space as order_in_space
from ._problem import Problem as Problem
from ._pytree import pytree_state as pytree_state
from ._registry import (
    EXACT_PROBLEMS as EXACT_PROBLEMS,
    REFERENCE_PROBLEMS as REFERENCE_PROBLEMS,
    WAVE_PROBLEMS as WAVE_PROBLEMS,
)
from ._sound import dalembert as dalembert, sound_of_a_point as sound_of_a_point
from ._stiff_references import (
    hires as hires,
    oregonator as oregonator,
    robertson as robertson,
    van_der_pol as van_der_pol,
    van_der_pol_unscaled as van_der_pol_unscaled,
)
from ._time_dependent import (
    cosine_growth as cosine_growth,
    polynomial as polynomial,
    prothero_robinson as prothero_robinson,
)
from ._vortices import taylor_green_vortex as taylor_green_vortex
from ._waves import (
    ginzburg_landau_wave as ginzburg_landau_wave,
    kdv_soliton as kdv_soliton,
    kdv_two_solitons as kdv_two_solitons,
    schroedinger_soliton as schroedinger_soliton,
)
