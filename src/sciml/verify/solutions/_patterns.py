"""Exact results for phases, patterns and fronts."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._types import RealScalarLike


def phase_wall(x: Float[Array, "..."], width: RealScalarLike = 1.0) -> Float[Array, "..."]:
    r"""Returns $\tanh(x / (\sqrt 2 \epsilon))$, a wall at rest between the phases $\pm 1$.

    It solves the Allen-Cahn and the Cahn-Hilliard equation, $u^3 - u - \epsilon^2 u'' = 0$. Its energy
    $\int \tfrac12 \epsilon^2 u'^2 + \tfrac14 (1 - u^2)^2$ is $\tfrac{2 \sqrt 2}{3} \epsilon$.

    Args:
        x: The distance from the middle of the wall, any shape.
        width: $\epsilon$.

    Source:
        J. W. Cahn and J. E. Hilliard, J. Chem. Phys. 28:258, 1958.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import AllenCahn
        from sciml.spatial import Grid, Neumann
        from sciml.verify import reference

        grid = Grid(128, -1.0, 1.0)
        model = AllenCahn(grid, Neumann(0.0), width=0.1)
        assert jnp.max(jnp.abs(model(0.0, reference("phase_wall", grid.centers[0], 0.1), None))) < 5e-3
        ```
    """
    return jnp.tanh(x / jnp.asarray(jnp.sqrt(2.0) * width, x.dtype))


def cahn_hilliard_growth(
    wavenumber: Float[Array, "..."],
    width: RealScalarLike = 0.01,
    mobility: RealScalarLike = 1.0,
    mean: RealScalarLike = 0.0,
) -> Float[Array, "..."]:
    r"""Returns the rate at which a small wave on a mixture grows, $\sigma = M k^2 (1 - 3 m^2 - \epsilon^2 k^2)$.

    Mixtures with $3 m^2 < 1$ separate. The fastest wave has $\epsilon^2 k^2 = (1 - 3 m^2) / 2$.

    Args:
        wavenumber: $|k|$, any shape.
        width: $\epsilon$.
        mobility: $M$.
        mean: $m$, the mean of the field.

    Source:
        J. W. Cahn, Acta Metall. 9:795, 1961.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        rates = reference("cahn_hilliard_growth", jnp.array([0.0, 5.0, 10.0]), width=0.1)
        assert jnp.allclose(rates, jnp.array([0.0, 18.75, 0.0]), atol=1e-3)
        ```
    """
    square = jnp.square(wavenumber)
    width, mobility, mean = (jnp.asarray(value, square.dtype) for value in (width, mobility, mean))
    return mobility * square * (1 - 3 * mean**2 - width**2 * square)


def swift_hohenberg_growth(
    wavenumber: Float[Array, "..."], rate: RealScalarLike = 0.2, critical: RealScalarLike = 1.0
) -> Float[Array, "..."]:
    r"""Returns the rate at which a small wave of the Swift-Hohenberg equation grows, $\sigma = r - (q^2 - k^2)^2$.

    All decay where $r < 0$; above this threshold waves of $k \approx q$ grow first.

    Args:
        wavenumber: $|k|$, any shape.
        rate: $r$.
        critical: $q$, the wavenumber of the pattern.

    Source:
        J. Swift and P. C. Hohenberg, Phys. Rev. A 15:319, 1977.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        assert jnp.argmax(reference("swift_hohenberg_growth", jnp.array([0.5, 1.0, 1.5]))) == 1
        ```
    """
    square = jnp.square(wavenumber)
    rate, critical = jnp.asarray(rate, square.dtype), jnp.asarray(critical, square.dtype)
    return rate - jnp.square(critical**2 - square)


def turing_growth(
    reaction: Callable, state: Float[Array, " n"], diffusivities: Any, wavenumber: Float[Array, "..."]
) -> Complex[Array, "... n"]:
    r"""Returns the rates at which small waves on a uniform steady state grow.

    They are the eigenvalues $\sigma$ of $\partial f / \partial u - k^2 \operatorname{diag}(D)$, by falling real part.
    If the state is stable for $k = 0$ and not for others, diffusion makes a pattern: Turing's instability. With
    `Brusselator(a, b)` at $(a, b/a)$ this is where $b > (1 + a \sqrt{D_u / D_v})^2$, at first at
    $k^2 = a / \sqrt{D_u D_v}$.

    On a grid pass the root of the negative `symbol` of the Laplacian instead of $k$: its waves grow at exactly that
    rate.

    Args:
        reaction: $f$, a model of one place, as in `sciml.models.ReactionDiffusion`.
        state: The steady state, $f(u) = 0$.
        diffusivities: $D$, one for each substance.
        wavenumber: $|k|$, any shape.

    Returns:
        $\sigma$, of the shape of the wavenumbers with one axis more. It does not support reverse mode, and only runs on
        the CPU if JAX has no general eigenvalues elsewhere.

    Source:
        A. M. Turing, Phil. Trans. R. Soc. B 237:37, 1952.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Brusselator
        from sciml.verify import reference

        k = jnp.linspace(0.0, 1.5, 31)
        rates = reference("turing_growth", Brusselator(3.0, 9.0), jnp.array([3.0, 3.0]), (5.0, 12.0), k)[:, 0].real
        assert rates[0] < 0 < rates.max()  # stable when stirred, a pattern when not
        assert abs(k[rates.argmax()] ** 2 - 3.0 / 60**0.5) < 0.1
        ```
    """
    jacobian = jax.jacfwd(lambda u: reaction(0.0, u, None))(state)
    spread = jnp.diag(jnp.asarray(diffusivities, state.dtype))
    square = jnp.square(wavenumber).astype(state.dtype)[..., None, None]
    matrices = jacobian.reshape((1,) * wavenumber.ndim + jacobian.shape) - square * spread.reshape(
        (1,) * wavenumber.ndim + spread.shape
    )
    found = jnp.linalg.eigvals(matrices)
    return jnp.take_along_axis(found, jnp.argsort(-found.real, axis=-1), axis=-1)


def turing_onset(reaction: Callable, state: Float[Array, " 2"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Returns where two substances begin to make a pattern: the ratio of their diffusivities, and the wavenumber.

    With the derivatives $f_u, f_v, g_u, g_v$ at a steady state that is stable when stirred, whose first substance
    activates itself, small waves grow for a ratio $D_v / D_u$ above

    $$d = \frac{f_u g_v - 2 f_v g_u + 2 \sqrt{-f_v g_u (f_u g_v - f_v g_u)}}{f_u^2},$$

    at first with $k^2 = (d f_u + g_v) / (2 d)$ in units of $1 / D_u$.

    Args:
        reaction: A model of one place with two substances, as in `sciml.models.ReactionDiffusion`.
        state: The steady state.

    Returns:
        $d$, and $k \sqrt{D_u}$; NaN if there is no such instability.

    Source:
        J. D. Murray, Mathematical Biology II, Springer, 2003, section 2.3.

    Example:
        ```python
        from sciml.models import Schnakenberg
        from sciml.verify import reference

        reaction = Schnakenberg(a=0.1, b=0.9)
        ratio, wavenumber = reference("turing_onset", reaction, reaction.rest())
        assert abs(ratio - 8.568) < 1e-3 and 0.5 < wavenumber < 0.7
        ```
    """
    (fu, fv), (gu, gv) = jax.jacfwd(lambda u: reaction(0.0, u, None))(state)
    whole = fu * gv - fv * gu
    ratio = (fu * gv - 2 * fv * gu + 2 * jnp.sqrt(-fv * gu * whole)) / (fu * fu)
    return ratio, jnp.sqrt((ratio * fu + gv) / (2 * ratio))


def nagumo_front(
    x: Float[Array, "..."], t: RealScalarLike, middle: RealScalarLike = 0.0, diffusivity: RealScalarLike = 1.0
) -> Float[Array, "..."]:
    r"""Returns the front of an excitable medium whose recovery does not move.

    If $w$ is a constant, the voltage of `FitzHughNagumo` with diffusion obeys

    $$\partial_t v = D \partial_{xx} v - \tfrac13 (v - v_1)(v - v_2)(v - v_3), \qquad v_1 + v_2 + v_3 = 0,$$

    and with $v_1 < v_2 < v_3$ there is the front

    $$v = \frac{v_1 + v_3}{2} - \frac{v_3 - v_1}{2} \tanh\left(\frac{v_3 - v_1}{2 \sqrt{6 D}} (x - s t)\right), \qquad
      s = -3 v_2 \sqrt{D / 6},$$

    behind which the medium is excited, $v_3$, and before which it rests, $v_1$.

    Args:
        x: Places, any shape.
        t: The time.
        middle: $v_2$, between -1 and 1; then $w - I = v_2 - v_2^3 / 3$.
        diffusivity: $D$.

    Source:
        J. Nagumo, S. Arimoto and S. Yoshizawa, Proc. IRE 50:2061, 1962; J. D. Murray, Mathematical Biology, chapter 13.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.verify import reference

        v = reference("nagumo_front", jnp.array([-50.0, 50.0]), 0.0, middle=-0.2)
        assert jnp.allclose(v - v**3 / 3, -0.2 + 0.2**3 / 3)  # steady states on both sides
        ```
    """
    v2, d, time = (jnp.asarray(value, x.dtype) for value in (middle, diffusivity, t))
    half = jnp.sqrt(3 - 3 * v2**2 / 4)  # half of v3 - v1, from v1 + v3 = -v2 and v1 v3 = v2^2 - 3
    return -v2 / 2 - half * jnp.tanh(half / jnp.sqrt(6 * d) * (x + 3 * v2 * jnp.sqrt(d / 6) * time))


def allen_cahn_front(x: Float[Array, "..."], t: RealScalarLike, width: RealScalarLike = 0.02) -> Float[Array, "..."]:
    r"""Returns the front by which the phase 1 of the Allen-Cahn equation invades the unstable state 0.

    $$u = \tfrac12 \left(1 - \tanh \frac{x - s t}{2 \sqrt 2\, \epsilon}\right), \qquad s = \frac{3 \epsilon}{\sqrt 2}$$

    Args:
        x: Places, any shape.
        t: The time.
        width: $\epsilon$.

    Returns:
        $u$ at the places, between 0 and 1.

    Source:
        T. Kawahara and M. Tanaka, Phys. Lett. A 97:311, 1983.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        moved = 3 * 0.1 / 2**0.5 * 2.0
        assert abs(verify.reference("allen_cahn_front", jnp.array(moved), 2.0, width=0.1) - 0.5) < 1e-6
        ```
    """
    width, time = jnp.asarray(width, x.dtype), jnp.asarray(t, x.dtype)
    return jax.nn.sigmoid((3 * width / 2**0.5 * time - x) / (2**0.5 * width))


def allen_cahn_radius(
    radius: RealScalarLike, t: RealScalarLike, width: RealScalarLike = 0.02, *, ndim: int = 2
) -> Float[Array, ""]:
    r"""Returns the radius of a shrinking disc or ball of one phase, $r^2 = r_0^2 - 2 (d - 1) \epsilon^2 t$.

    It is the motion by curvature that the Allen-Cahn equation has where $\epsilon$ is small against the radius.

    Args:
        radius: $r_0$.
        t: The time.
        width: $\epsilon$.
        ndim: $d$, the dimension of space, 2 or 3.

    Returns:
        The radius; zero once the disc has vanished.

    Source:
        S. M. Allen and J. W. Cahn, Acta Metall. 27:1085, 1979.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.reference("allen_cahn_radius", 0.5, 100.0, width=0.02) - 0.17**0.5) < 1e-6
        ```
    """
    radius, t, width = (jnp.asarray(v, jnp.result_type(float)) for v in (radius, t, width))
    return jnp.sqrt(jnp.maximum(radius**2 - 2 * (ndim - 1) * width**2 * t, 0.0))


def fisher_kpp_speed(
    t: RealScalarLike, diffusivity: RealScalarLike = 1.0, rate: RealScalarLike = 1.0
) -> Float[Array, ""]:
    r"""Returns the speed of a front of the Fisher-KPP equation that started as a step, long after.

    $$v(t) = v^* - \frac{3}{2 \lambda t} + \frac{3 \sqrt \pi}{2 \lambda^2 \sqrt{D}\, t^{3/2}} + O(t^{-2}),
    \qquad v^* = 2 \sqrt{r D}, \quad \lambda = \sqrt{r / D}$$

    Args:
        t: The time; large against $1 / r$, and infinite for $v^*$.
        diffusivity: $D$.
        rate: $r$.

    Source:
        M. Bramson, Mem. Amer. Math. Soc. 44, 1983; U. Ebert and W. van Saarloos, Physica D 146:1, 2000.

    Example:
        ```python
        from sciml import verify

        assert verify.reference("fisher_kpp_speed", float("inf"), diffusivity=4.0) == 4.0
        ```
    """
    t, d, r = (jnp.asarray(v, jnp.result_type(float)) for v in (t, diffusivity, rate))
    steepness = jnp.sqrt(r / d)
    slow = -3 / (2 * steepness * t) + 3 * jnp.pi**0.5 / (2 * steepness**2 * jnp.sqrt(d) * t**1.5)
    return 2 * jnp.sqrt(r * d) + slow


def front_position(
    x: Float[Array, " cells"], u: Float[Array, " cells"], level: RealScalarLike = 0.5
) -> Float[Array, ""]:
    """Returns where a field first crosses a level, by linear interpolation.

    The slope of the positions over time is the speed of a front.

    Args:
        x: The places, ascending.
        u: The field.
        level: The level.

    Returns:
        The place; NaN if the field does not cross the level.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import verify

        x, ts = jnp.linspace(0.0, 20.0, 101), jnp.linspace(2.0, 6.0, 9)
        fronts = jax.vmap(lambda t: verify.reference("fisher_kpp_front", x, t))(ts)
        places = jax.vmap(lambda u: verify.reference("front_position", x, u, 0.25))(fronts)
        assert abs((places[-1] - places[0]) / 4.0 - 5 / 6**0.5) < 1e-2
        ```
    """
    away = u - jnp.asarray(level, u.dtype)
    crosses = (away[:-1] > 0) != (away[1:] > 0)
    i = jnp.argmax(crosses)
    place = x[i] + (x[i + 1] - x[i]) * away[i] / jnp.where(crosses[i], away[i] - away[i + 1], 1)
    return jnp.where(crosses[i], place, jnp.nan)
