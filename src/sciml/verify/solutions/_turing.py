"""What is known exactly of reactions that diffuse: how fast patterns grow, and a front."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._types import RealScalarLike


def turing_growth(
    reaction: Callable, state: Float[Array, " n"], diffusivities: Any, wavenumber: Float[Array, "..."]
) -> Complex[Array, "... n"]:
    r"""Returns the rates at which small waves on a uniform steady state grow.

    They are the eigenvalues $\sigma$ of $\partial f / \partial u - k^2 \operatorname{diag}(D)$, by falling real part.
    Where the state is stable for $k = 0$ and not for others, diffusion makes a pattern: Turing's instability. With
    `Brusselator(a, b)` at $(a, b/a)$ this is where $b > (1 + a \sqrt{D_u / D_v})^2$, at first at
    $k^2 = a / \sqrt{D_u D_v}$.

    On a grid give the root of the negative `symbol` of the Laplacian in place of $k$: its waves grow at exactly that
    rate.

    Args:
        reaction: $f$, a model of one place, as in `sciml.models.ReactionDiffusion`.
        state: The steady state, $f(u) = 0$.
        diffusivities: $D$, one for each substance.
        wavenumber: $|k|$, any shape.

    Returns:
        $\sigma$, of the shape of the wavenumbers with one axis more. Not for reverse mode, and on the CPU alone where
        JAX has no general eigenvalues elsewhere.

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
        $d$, and $k \sqrt{D_u}$; NaN where there is no such instability.

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

    Where $w$ is a constant, the voltage of `FitzHughNagumo` with diffusion obeys

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
