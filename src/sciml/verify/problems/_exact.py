"""Problems of few unknowns with exact solutions."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...models import HarmonicOscillator, Linear, Logistic, TwoCompartment
from ._problem import Problem, elapsed, floating


def _exponential(problem, t):
    y0 = problem.y0
    p = with_dtype(problem.model, y0.dtype)
    return jax.scipy.linalg.expm(p.matrix * elapsed(problem, t, y0.dtype)) @ y0


def exponential_decay(
    rate: RealScalarLike = 1.0, *, t1: RealScalarLike = 2.0, dtype: DTypeLike | None = None
) -> Problem:
    r"""Returns $\dot y = -\lambda y$, $y(0) = 1$, with $y = e^{-\lambda t}$, shape `(1,)`.

    Args:
        rate: The rate $\lambda$; a large one makes it a test of stability.
        t1: The end time.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("exponential_decay").solution(1.0)[0] - 0.36787944) < 1e-6
        ```
    """
    return Problem(
        model=Linear(matrix=-jnp.reshape(jnp.asarray(rate, floating(dtype)), (1, 1))),
        y0=jnp.ones(1, floating(dtype)),
        t0=0.0,
        t1=t1,
        exact=_decay,
        name="exponential decay",
        source="exact: exp(-rate t)",
    )


def _decay(problem, t):
    y0 = problem.y0
    p = with_dtype(problem.model, y0.dtype)
    return jnp.exp(p.matrix[0, 0] * elapsed(problem, t, y0.dtype)) * y0


def linear_system(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns $\dot y = A y$ with a non-normal `(3, 3)` matrix, solved by $e^{A t} y_0$.

    The eigenvalues are $-1 \pm 4 i$ and $-2$; time runs from 0 to 2.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("linear_system")
        assert problem.error(problem.solution(2.0)) == 0.0
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=Linear(matrix=jnp.asarray([[-1.0, 4.0, 1.0], [-4.0, -1.0, 2.0], [0.0, 0.0, -2.0]], dtype)),
        y0=jnp.asarray([1.0, 0.0, 1.0], dtype),
        t0=0.0,
        t1=2.0,
        exact=_exponential,
        name="linear system",
        source="exact: expm(A t) y0",
    )


def harmonic_oscillator(
    omega: RealScalarLike = 2.0, zeta: RealScalarLike = 0.1, *, dtype: DTypeLike | None = None
) -> Problem:
    r"""Returns a damped oscillator from $(1, 0)$, time from 0 to 3, with $\zeta < 1$.

    Args:
        omega: Angular frequency $\omega$ without damping.
        zeta: Damping ratio $\zeta$, from 0 to below 1; 0 conserves the energy.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        after = verify.problem("harmonic_oscillator", omega=1.0, zeta=0.0).solution(2 * jnp.pi)
        assert jnp.allclose(after, jnp.array([1.0, 0.0]), atol=1e-6)
        ```
    """
    return Problem(
        model=HarmonicOscillator(omega=omega, zeta=zeta),
        y0=jnp.asarray([1.0, 0.0], floating(dtype)),
        t0=0.0,
        t1=3.0,
        exact=_oscillation,
        name="harmonic oscillator",
        source="exact: Landau and Lifshitz, Mechanics, section 25",
    )


def _oscillation(problem, t):
    x0, v0 = problem.y0[0], problem.y0[1]
    p = with_dtype(problem.model, problem.y0.dtype)
    time = elapsed(problem, t, problem.y0.dtype)
    decay = p.zeta * p.omega
    frequency = p.omega * jnp.sqrt(1 - p.zeta**2)
    amplitude = (v0 + decay * x0) / frequency
    cos, sin = jnp.cos(frequency * time), jnp.sin(frequency * time)
    x = x0 * cos + amplitude * sin
    slope = frequency * (amplitude * cos - x0 * sin)
    return jnp.exp(-decay * time) * jnp.stack([x, slope - decay * x])


def logistic(rate: RealScalarLike = 1.5, capacity: RealScalarLike = 2.0, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns logistic growth from $(0.1, 0.5)$, time from 0 to 3.

    Args:
        rate: The growth rate $r$.
        capacity: The capacity $K$.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        late = verify.problem("logistic", rate=1.5, capacity=2.0).solution(30.0)
        assert abs(late[0] - 2.0) < 1e-6
        ```
    """
    return Problem(
        model=Logistic(rate=rate, capacity=capacity),
        y0=jnp.asarray([0.1, 0.5], floating(dtype)),
        t0=0.0,
        t1=3.0,
        exact=_growth,
        name="logistic growth",
        source="exact: K / (1 + (K/y0 - 1) exp(-r t))",
    )


def _growth(problem, t):
    y0 = problem.y0
    p = with_dtype(problem.model, y0.dtype)
    shrink = jnp.exp(-p.rate * elapsed(problem, t, y0.dtype))
    return p.capacity / (1 + (p.capacity / y0 - 1) * shrink)


class Parts(AbstractModel):
    """Decay of a table of values, together with an oscillator of two scalars."""

    rates: Float[Array, " columns"] = eqx.field(converter=parameter)
    omega: Parameter = eqx.field(default=2.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: dict, args: Args) -> dict:
        """Returns the derivative, a dictionary like `y`."""
        del t, args
        table, (x, v) = y["table"], y["pair"]
        p = with_dtype(self, table.dtype)
        return {"table": -p.rates[None, :] * table, "pair": (v, -(p.omega**2) * x)}


def pytree_state(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns a problem whose state is `{"table": (2, 3) array, "pair": (scalar, scalar)}`.

    The columns of the table decay, the pair is a harmonic oscillator; time runs from 0 to 2.

    Args:
        dtype: The dtype of all leaves; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        end = verify.problem("pytree_state").end()
        assert end["table"].shape == (2, 3) and end["pair"][0].shape == ()
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=Parts(rates=jnp.asarray([0.5, 1.0, 2.0], dtype)),
        y0={
            "table": jnp.asarray([[1.0, 2.0, 3.0], [-1.0, 0.5, 4.0]], dtype),
            "pair": (jnp.asarray(1.0, dtype), jnp.asarray(-0.5, dtype)),
        },
        t0=0.0,
        t1=2.0,
        exact=_parts,
        name="PyTree state",
        source="exact: exponentials, and a harmonic oscillator",
    )


def _parts(problem, t):
    table, (x, v) = problem.y0["table"], problem.y0["pair"]
    p = with_dtype(problem.model, table.dtype)
    time = elapsed(problem, t, table.dtype)
    cos, sin = jnp.cos(p.omega * time), jnp.sin(p.omega * time)
    return {
        "table": table * jnp.exp(-p.rates * time)[None, :],
        "pair": (x * cos + v / p.omega * sin, v * cos - x * p.omega * sin),
    }


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
    $k_{10} = C\!L / V_1$, $k_{12} = Q / V_1$ and $k_{21} = Q / V_2$; and so on. The equations are linear, so the
    effects of several doses add up.

    Args:
        swallowed: The initial amount in the depot.
        injected: The initial amount in the central compartment.
        infused: The rate of a continuous infusion.
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
        """The amount in each compartment for a unit dose in the central one, from these exponentials."""
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


class CosineGrowth(AbstractModel):
    r"""$\dot y = k y \cos t$."""

    rate: Parameter = eqx.field(default=1.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the growth of every element."""
        del args
        return with_dtype(self, y.dtype).rate * y * jnp.cos(jnp.asarray(t, y.dtype))


class Polynomial(AbstractModel):
    r"""$\dot y = \sum_k c_k t^k$, the same for every element."""

    coefficients: Float[Array, " terms"] = eqx.field(converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the polynomial at `t` in the shape of `y`."""
        del args
        p = with_dtype(self, y.dtype)
        return jnp.broadcast_to(_polynomial(p.coefficients, jnp.asarray(t, y.dtype)), y.shape)


class ProtheroRobinson(AbstractModel):
    r"""$\dot y = -\lambda (y - \sin t) + \cos t$."""

    rate: Parameter = eqx.field(default=1e3, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the pull towards the sine, plus its slope."""
        del args
        t = jnp.asarray(t, y.dtype)
        return -with_dtype(self, y.dtype).rate * (y - jnp.sin(t)) + jnp.cos(t)


def cosine_growth(rate: RealScalarLike = 1.0, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns $\dot y = k y \cos t$, $y(0) = 1$, with $y = e^{k \sin t}$, time from 0 to 2.

    A solver that evaluates its stages at wrong times fails it.

    Args:
        rate: The factor $k$.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("cosine_growth").solution(3.14159265)[0] - 1.0) < 1e-5
        ```
    """
    return Problem(
        model=CosineGrowth(rate=rate),
        y0=jnp.ones(1, floating(dtype)),
        t0=0.0,
        t1=2.0,
        exact=_cosine_growth,
        name="cosine growth",
        source="exact: y0 exp(k (sin t - sin t0))",
    )


def _cosine_growth(problem, t):
    dtype = problem.y0.dtype
    sines = jnp.sin(jnp.asarray(t, dtype)) - jnp.sin(jnp.asarray(problem.t0, dtype))
    return problem.y0 * jnp.exp(with_dtype(problem.model, dtype).rate * sines)


def polynomial(degree: int = 3, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns $\dot y = \sum_{k=0}^{d} (k + 1) t^k$, $y(0) = 1$, time from 0 to 1.

    The solution is a polynomial of degree $d + 1$: a method of that order makes no error at all.

    Args:
        degree: The degree $d$ of the vector field, at least 0.
        dtype: The dtype of the state; the default floating type if None.

    Raises:
        ValueError: If `degree` is negative.

    Example:
        ```python
        from sciml import verify

        assert verify.problem("polynomial", degree=3).end()[0] == 5.0  # 1 + t + t^2 + t^3 + t^4
        ```
    """
    if degree < 0:
        raise ValueError(f"`degree` must be at least 0, but got {degree}.")
    dtype = floating(dtype)
    return Problem(
        model=Polynomial(jnp.arange(1, degree + 2).astype(dtype)),
        y0=jnp.ones(1, dtype),
        t0=0.0,
        t1=1.0,
        exact=_integrated,
        name=f"polynomial of degree {degree}",
        source="exact: the integral of the polynomial",
    )


def _integrated(problem, t):
    dtype = problem.y0.dtype
    c = with_dtype(problem.model, dtype).coefficients
    c = jnp.concatenate([jnp.zeros(1, dtype), c / jnp.arange(1, c.shape[0] + 1).astype(dtype)])
    start = _polynomial(c, jnp.asarray(problem.t0, dtype))
    return problem.y0 + (_polynomial(c, jnp.asarray(t, dtype)) - start)


def prothero_robinson(rate: RealScalarLike = 1e3, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns $\dot y = -\lambda (y - \sin t) + \cos t$, $y(0) = 0$, with $y = \sin t$.

    Time runs from 0 to 1. For large $\lambda$ it is stiff, and shows the reduced order of implicit
    methods.

    Args:
        rate: The stiffness $\lambda$, 1/time.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("prothero_robinson").end()[0] - 0.84147098) < 1e-6
        ```
    """
    return Problem(
        model=ProtheroRobinson(rate=rate),
        y0=jnp.zeros(1, floating(dtype)),
        t0=0.0,
        t1=1.0,
        exact=_sine,
        name="Prothero-Robinson",
        source="A. Prothero and A. Robinson, Math. Comp. 28:145, 1974; exact: sin t",
    )


def _sine(problem, t):
    dtype = problem.y0.dtype
    t, t0 = jnp.asarray(t, dtype), jnp.asarray(problem.t0, dtype)
    rate = with_dtype(problem.model, dtype).rate
    return jnp.sin(t) + (problem.y0 - jnp.sin(t0)) * jnp.exp(-rate * (t - t0))


def _polynomial(coefficients, t):
    total = jnp.zeros_like(t)
    for i in reversed(range(coefficients.shape[0])):
        total = total * t + coefficients[i]
    return total
