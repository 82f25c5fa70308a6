"""Problems with an exact solution, on the models of the library."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ..._parameters import with_dtype
from ..._types import RealScalarLike
from ...models import HarmonicOscillator, Linear, Logistic
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
