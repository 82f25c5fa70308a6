"""Exact laws of processes with noise, of drift and diffusion: moments, densities, probabilities of counts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlog1py, xlogy
from jaxtyping import Array, Float

from ..._interfaces._reactions import AbstractReactions
from ..._types import RealScalarLike
from ...models import BirthDeath, GeometricBrownian, OrnsteinUhlenbeck


def ornstein_uhlenbeck_density(
    x: Float[Array, "..."],
    t: RealScalarLike,
    rate: RealScalarLike = 1.0,
    diffusivity: RealScalarLike = 1.0,
    mean: RealScalarLike = 0.0,
    variance: RealScalarLike = 1.0,
) -> Float[Array, "..."]:
    r"""Returns the density of `sciml.models.FokkerPlanck` in the potential $V = k x^2 / 2$, from a Gaussian on.

    It stays a Gaussian, of the mean $m e^{-k t}$ and the variance $D / k + (s - D / k) e^{-2 k t}$.

    Args:
        x: Places, any shape.
        t: The time.
        rate: $k$.
        diffusivity: $D$.
        mean: $m$, at the time 0.
        variance: $s$, at the time 0.

    Source:
        G. E. Uhlenbeck and L. S. Ornstein, Phys. Rev. 36:823, 1930.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        x = jnp.linspace(-6.0, 6.0, 200)
        u = reference("ornstein_uhlenbeck_density", x, 0.7, mean=2.0, variance=0.1)
        assert abs(jnp.sum(u * x) * (x[1] - x[0]) - 2.0 * jnp.exp(-0.7)) < 1e-4
        ```
    """
    k, d, m, s, time = (jnp.asarray(value, x.dtype) for value in (rate, diffusivity, mean, variance, t))
    center, spread = m * jnp.exp(-k * time), d / k + (s - d / k) * jnp.exp(-2 * k * time)
    return jnp.exp(-jnp.square(x - center) / (2 * spread)) / jnp.sqrt(2 * jnp.pi * spread)


def keller_segel_growth(
    wavenumber: Float[Array, "..."],
    density: RealScalarLike = 1.0,
    sensitivity: RealScalarLike = 1.0,
    diffusivity_u: RealScalarLike = 1.0,
    diffusivity_c: RealScalarLike = 1.0,
    production: RealScalarLike = 1.0,
    decay: RealScalarLike = 1.0,
) -> Float[Array, "... 2"]:
    r"""Returns the rates at which small waves on a uniform state of `sciml.models.KellerSegel` grow.

    They are the eigenvalues of

    $$\begin{pmatrix} -D_u k^2 & \chi u k^2 \\ \alpha & -D_c k^2 - \beta \end{pmatrix},$$

    which are real. Long waves grow where $\chi \alpha u > D_u \beta$. On a grid pass the root of the negative `symbol`
    of the Laplacian instead of $k$: its waves grow at exactly that rate.

    Args:
        wavenumber: $|k|$, any shape.
        density: $u$.
        sensitivity: $\chi$.
        diffusivity_u: $D_u$.
        diffusivity_c: $D_c$.
        production: $\alpha$.
        decay: $\beta$.

    Returns:
        The larger and the smaller rate, of the shape of the wavenumbers with one axis more.

    Source:
        E. F. Keller and L. A. Segel, J. Theor. Biol. 26:399, 1970.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        k = jnp.array([0.0, 0.5, 1.0, 2.0])
        rates = reference("keller_segel_growth", k, density=2.0)[:, 0]
        assert rates[1] > 0 and abs(rates[2]) < 1e-6 and rates[3] < 0  # those with k^2 < 1 grow
        ```
    """
    u, chi, du, dc, alpha, beta = (
        jnp.asarray(value, wavenumber.dtype)
        for value in (density, sensitivity, diffusivity_u, diffusivity_c, production, decay)
    )
    square = jnp.square(wavenumber)
    cells, attractant = -du * square, -dc * square - beta
    middle, apart = (cells + attractant) / 2, (cells - attractant) / 2
    root = jnp.sqrt(jnp.square(apart) + chi * u * alpha * square)
    return jnp.stack([middle + root, middle - root], axis=-1)


def gibbs_density(grid: Any, potential: Float[Array, "*grid"], diffusivity: RealScalarLike = 1.0) -> Array:
    r"""Returns the density $e^{-V / D} / \int e^{-V / D}$, at which drift and diffusion balance.

    Args:
        grid: A grid of `sciml.spatial`.
        potential: $V$, an array over the grid.
        diffusivity: $D$.

    Source:
        H. Risken, The Fokker-Planck Equation, Springer, 1989, chapter 5.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid
        from sciml.verify import reference

        grid = Grid(64, -3.0, 3.0)
        u = reference("gibbs_density", grid, grid.centers[0] ** 2 / 2, 0.1)
        assert abs(grid.integrate(u * grid.centers[0] ** 2) - 0.1) < 1e-3
        ```
    """
    shares = jnp.exp((jnp.min(potential) - potential) / jnp.asarray(diffusivity, potential.dtype))
    return shares / grid.integrate(shares)


def ornstein_uhlenbeck_moments(
    process: OrnsteinUhlenbeck, y0: RealScalarLike, t: RealScalarLike | Float[Array, "*times"]
) -> tuple[Float[Array, "*times"], Float[Array, "*times"]]:
    r"""Returns mean and variance of an Ornstein-Uhlenbeck process, which is normal.

    $$\langle x \rangle = m + (x_0 - m) e^{-\theta t}, \qquad
    \langle (x - \langle x \rangle)^2 \rangle = \frac{\sigma^2}{2 \theta} (1 - e^{-2 \theta t})$$

    Args:
        process: The process.
        y0: $x_0$, the state at time zero.
        t: Times, of any shape.

    Source:
        G. E. Uhlenbeck and L. S. Ornstein, Phys. Rev. 36:823, 1930.

    Example:
        ```python
        from sciml import models, verify

        model = models.OrnsteinUhlenbeck(1.0, 0.0, 2.0)
        mean, variance = verify.reference("ornstein_uhlenbeck_moments", model, 3.0, 50.0)
        assert abs(mean) < 1e-6 and abs(variance - 2.0) < 1e-6
        ```
    """
    t = jnp.asarray(t, jnp.result_type(float))
    mean = process.mean + (jnp.asarray(y0, t.dtype) - process.mean) * jnp.exp(-process.rate * t)
    return mean, process.volatility**2 / (2 * process.rate) * -jnp.expm1(-2 * process.rate * t)


def geometric_brownian_moments(
    process: GeometricBrownian, y0: RealScalarLike, t: RealScalarLike | Float[Array, "*times"]
) -> tuple[Float[Array, "*times"], Float[Array, "*times"]]:
    r"""Returns mean and variance of a geometric Brownian motion, whose logarithm is normal.

    $$\langle S \rangle = S_0 e^{\mu t}, \qquad
    \langle (S - \langle S \rangle)^2 \rangle = S_0^2 e^{2 \mu t} (e^{\sigma^2 t} - 1)$$

    Args:
        process: The process.
        y0: $S_0$, the state at time zero.
        t: Times, of any shape.

    Source:
        P. E. Kloeden and E. Platen, Numerical Solution of Stochastic Differential Equations, 1992, section 4.4.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import models, verify

        mean, variance = verify.reference("geometric_brownian_moments", models.GeometricBrownian(0.0, 1.0), 2.0, 1.0)
        assert mean == 2.0 and abs(variance - 4 * (jnp.e - 1)) < 1e-5
        ```
    """
    t = jnp.asarray(t, jnp.result_type(float))
    mean = jnp.asarray(y0, t.dtype) * jnp.exp(process.rate * t)
    return mean, mean**2 * jnp.expm1(process.volatility**2 * t)


def birth_death_law(
    model: BirthDeath, n: Float[Array, "*shape"], t: RealScalarLike, start: int = 0
) -> Float[Array, "*shape"]:
    r"""Returns the probabilities of counts under births and deaths.

    Starting from zero molecules, the law is Poisson with the mean $(b / d)(1 - e^{-d t})$; each initial molecule still
    exists with the probability $e^{-d t}$, which adds a binomial number.

    Args:
        model: The births and deaths.
        n: Counts, whole numbers, of any shape.
        t: The time, above zero.
        start: The count at time zero.

    Returns:
        The probability of each count.

    Source:
        C. W. Gardiner, Handbook of Stochastic Methods, 3rd edition, 2004, section 7.1.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import models, verify

        law = verify.reference("birth_death_law", models.BirthDeath(birth=3.0, death=1.0), jnp.arange(40.0), 100.0)
        assert abs(law.sum() - 1) < 1e-5 and abs(jnp.arange(40.0) @ law - 3.0) < 1e-5
        ```
    """
    if isinstance(start, bool) or not isinstance(start, int | np.integer) or start < 0:
        raise ValueError(f"`start` must be a count, an integer of zero or more, but is {start!r}.")
    t = jnp.asarray(t, n.dtype)
    death = model.death.astype(n.dtype)
    stays = jnp.exp(-death * t)
    mean = model.birth.astype(n.dtype) / death * -jnp.expm1(-death * t)
    old = jnp.reshape(jnp.arange(start + 1, dtype=n.dtype), (1,) * n.ndim + (-1,))
    chosen = gammaln(start + 1.0) - gammaln(old + 1) - gammaln(start - old + 1)
    of_old = jnp.exp(chosen.astype(n.dtype) + xlogy(old, stays) + xlog1py(start - old, -stays))
    new = n[..., None] - old
    there = jnp.maximum(new, 0)
    of_new = jnp.where(new >= 0, jnp.exp(xlogy(there, mean) - mean - gammaln(there + 1)), 0)
    return jnp.sum(of_old * of_new, axis=-1)


def one_step_law(reactions: AbstractReactions, most: int) -> Float[Array, " counts"]:
    r"""Returns the law in the long run of a count that reactions change by one at a time.

    In the long run as many go from $n$ to $n + 1$ as come back, so that
    $p_n \propto \prod_{k < n} a_+(k) / a_-(k + 1)$, where $a_\pm$ are the rates of all reactions that add or take one.

    Args:
        reactions: Reactions of one species.
        most: The largest count; those above it should be improbable.

    Returns:
        The probabilities of 0, 1, ..., `most`.

    Raises:
        ValueError: If there are several species, or a reaction changes the count by more than one.

    Source:
        C. W. Gardiner, Handbook of Stochastic Methods, 3rd edition, 2004, section 7.1.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import models, verify

        law = verify.reference("one_step_law", models.Schloegl(), 1000)
        assert 0.2 < law[:248].sum() < 0.25  # around the lower of two stable states
        ```
    """
    changes = np.asarray(reactions.stoichiometry)
    if changes.shape[1] != 1 or np.any(np.abs(changes) != 1):
        raise ValueError(
            "`reactions` must change the count of one species by one each, but their `stoichiometry` is "
            f"{changes.tolist()}."
        )
    n = jnp.arange(most + 1, dtype=jnp.result_type(float))
    rates = jax.vmap(lambda n: reactions.rates(n[None], None))(n)
    up, down = (jnp.sum(rates * jnp.asarray(changes[:, 0] == sign, rates.dtype)[None], axis=1) for sign in (1, -1))
    steps = jnp.log(up[:-1]) - jnp.log(down[1:])
    return jax.nn.softmax(jnp.concatenate([jnp.zeros(1, n.dtype), jnp.cumsum(steps)]))
