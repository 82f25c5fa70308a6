"""A drug in two compartments after a dose, in closed form."""

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from ..._parameters import with_dtype
from ..._types import RealScalarLike
from ...models import TwoCompartment
from ._problem import Problem, elapsed, floating


def two_compartment(
    swallowed: RealScalarLike = 100.0,
    injected: RealScalarLike = 50.0,
    infused: RealScalarLike = 20.0,
    *,
    model: TwoCompartment | None = None,
    t1: RealScalarLike = 1.0,
    dtype: DTypeLike | None = None,
) -> Problem:
    r"""Returns a drug in two compartments after a dose of each kind.

    $$\frac{c}{D} = \frac{(\alpha - k_{21}) e^{-\alpha t} + (k_{21} - \beta) e^{-\beta t}}{\alpha - \beta}$$

    after an injection of $D$, where $\alpha + \beta = k_{10} + k_{12} + k_{21}$, $\alpha \beta = k_{10} k_{21}$,
    $k_{10} = C\!L / V_1$, $k_{12} = Q / V_1$ and $k_{21} = Q / V_2$; and so on. Since the equations are linear, what
    several doses do adds up.

    Args:
        swallowed: What is in the depot at the start.
        injected: What is in the central compartment at the start.
        infused: The rate of an infusion that goes on.
        model: The drug; the default one if None.
        t1: The end time.
        dtype: The dtype of the state; the default floating type if None.

    Source:
        M. Gibaldi and D. Perrier, Pharmacokinetics, 2nd edition, 1982, chapter 2.

    Example:
        ```python
        from sciml import verify

        alone = [verify.problem("two_compartment", *dose).solution(0.7) for dose in ((9.0, 0.0, 0.0), (0.0, 5.0, 2.0))]
        both = verify.problem("two_compartment", 9.0, 5.0, 2.0).solution(0.7)
        assert abs(both - alone[0] - alone[1]).max() < 1e-5
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=TwoCompartment() if model is None else model,
        y0=jnp.stack([jnp.asarray(x, dtype) for x in (swallowed, injected, 0.0, infused)]),
        t0=0.0,
        t1=t1,
        exact=_amounts,
        name="two compartments",
        source="exact: Gibaldi and Perrier, Pharmacokinetics, 1982, chapter 2",
    )


def _amounts(problem, t):
    y0 = problem.y0
    p, time = with_dtype(problem.model, y0.dtype), elapsed(problem, t, y0.dtype)
    depot, central, peripheral, infusion = y0[0], y0[1], y0[2], y0[3]
    k10, k12, k21 = p.clearance / p.volume, p.exchange / p.volume, p.exchange / p.peripheral_volume
    apart = jnp.sqrt((k10 + k12 - k21) ** 2 + 4 * k12 * k21)
    fast = (k10 + k12 + k21 + apart) / 2
    slow = k10 * k21 / fast

    def both(decay: Array, other: Array) -> tuple[Array, Array]:
        """What is in each compartment of one that is put into the central one, as these exponentials say."""
        inside = ((fast - k21) * decay + (k21 - slow) * other) / apart
        return inside, k12 * (other - decay) / apart

    decays = jnp.exp(-fast * time), jnp.exp(-slow * time)
    at_once = both(*decays)
    absorbed = both(*(p.absorption * _together(rate, p.absorption, time) for rate in (fast, slow)))
    flowing = both(*(_together(rate, jnp.zeros_like(rate), time) for rate in (fast, slow)))
    stays = ((fast - k10 - k12) * decays[0] + (k10 + k12 - slow) * decays[1]) / apart
    back = k21 * (decays[1] - decays[0]) / apart
    return jnp.stack(
        [
            depot * jnp.exp(-p.absorption * time),
            central * at_once[0] + depot * absorbed[0] + infusion * flowing[0] + peripheral * back,
            central * at_once[1] + depot * absorbed[1] + infusion * flowing[1] + peripheral * stays,
            infusion,
        ]
    )


def _together(a: Array, b: Array, time: Array) -> Array:
    r"""Returns $\int_0^t e^{-a (t - s)} e^{-b s} ds = (e^{-b t} - e^{-a t}) / (a - b)$, also where both are equal."""
    z = jnp.abs(a - b) * time
    known = jnp.where(z > 0, z, 1)
    return jnp.exp(-jnp.minimum(a, b) * time) * time * jnp.where(z > 0, -jnp.expm1(-known) / known, 1)
