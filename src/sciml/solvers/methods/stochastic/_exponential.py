r"""The exponential method of Euler for equations with noise: what is linear exactly, its noise included.

Of a mode with $d\hat u = L \hat u \, dt + \hat g \, d\hat W$ a step adds $\int_0^h e^{(h - s) L} \hat g \, d\hat W_s$,
which has the variance

$$|\hat g|^2 \int_0^h |e^{s L}|^2 \, ds = |\hat g|^2 h \varphi_1(2 h \operatorname{Re} L).$$

It is taken as $\sqrt{\varphi_1(2 h \operatorname{Re} L)} \, e^{i h \operatorname{Im} L / 2} \hat g \, \Delta \hat W$,
which has this variance, and is near the integral on the same path: it differs from that in order $h^{3/2}$.

Source:
    G. J. Lord, J. Rougemont, A numerical scheme for stochastic PDEs with Gevrey regularity, IMA Journal of Numerical
    Analysis 24 (2004) 587.
    A. Jentzen, P. E. Kloeden, Overcoming the order barrier in the numerical approximation of stochastic partial
    differential equations with additive space-time noise, Proceedings of the Royal Society A 465 (2009) 649.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._types import Args, RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField, NoisyField
from ...terms._split_field import with_tables
from ..split._etdrk import ETD1
from ..split._exponential_rk import Exponential
from ..split._modal import dtype_in, times
from ..split._phi_functions import phi
from ._structured import (
    AbstractStructuredNoiseStepper,
    close_structured_noise,
    noise_of,
    rest_with_correction,
    state_of,
)


class StochasticETD1(AbstractStructuredNoiseStepper):
    r"""The exponential method of Euler for equations with noise, exact where these are linear and the noise additive.

    For a drift $L \hat u + N(t, \hat u)$ with $L$ diagonal in some modes, an `sciml.AbstractSemilinear` such as
    `sciml.models.KuramotoSivashinsky`, or an `sciml.AbstractSplit` that has them, such as `sciml.models.Diffusion`
    between alike sides,

    $$\hat u_1 = e^{h L} \hat u + h \varphi_1(h L) N(t, \hat u) + \int_t^{t + h} e^{(t + h - s) L} \hat g \, d\hat W_s$$

    where the integral has, for each mode, its exact variance, with $g$ at the start of the step. So the law of a linear
    equation with white noise, or with noise that is independent in these modes like a `sciml.spatial.ColouredNoise` on
    a periodic grid, is exact at the ends of steps of any length. In the sense of Ito; strong order 1 with additive
    noise, else 1/2.

    Source:
        G. J. Lord, J. Rougemont, IMA Journal of Numerical Analysis 24 (2004) 587; A. Jentzen, P. E. Kloeden,
        Proceedings of the Royal Society A 465 (2009) 649.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        grid = sciml.spatial.Grid(64)
        heat = sciml.models.Diffusion(grid, sciml.spatial.Periodic(), 0.1)
        noisy = sciml.Stochastic(heat, lambda t, u, args: 0.1, noise=sciml.spatial.WhiteNoise(grid))
        sol = sciml.solve(
            noisy, jnp.zeros(64), t0=0.0, t1=1.0, dt=0.25, key=jax.random.key(0), solver=sciml.solvers.StochasticETD1()
        )  # an explicit method has to take steps of 1e-3
        assert sol.ys.shape == (1, 64)
        ```
    """

    evaluations: ClassVar[int] = 1

    @property
    def _without_noise(self) -> Exponential:
        return Exponential(ETD1, "StochasticETD1")

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model's functions, and where all steps are alike their coefficients as tables."""
        field, operands = close_structured_noise(model, t, y, args, self._without_noise.functions)
        if h is None:
            return field, operands
        bound = field.bind(operands)
        modes = jax.eval_shape(bound["transform"], y)
        functions, operands = with_tables(field.functions, operands, _tables(bound, h, modes, wide=True))
        return NoisyField(functions, field.noise, field.is_elementwise), operands

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: PyTree) -> tuple[PyTree, None]:
        """Returns the modes after a step."""
        tables = _tables(field, h, y) if field.tables is None else field.tables
        state = state_of(field, y)
        rest, noise = rest_with_correction(field, "rest", t, y, state), noise_of(field, t, h, state)
        leaves, structure = jax.tree.flatten(y)
        rest, noise = (structure.flatten_up_to(x) for x in (rest, noise))
        moved = [
            times(table["decay"], u) + times(table["rest"], n) + times(table["noise"], w)
            for table, u, n, w in zip(tables, leaves, rest, noise)
        ]
        return jax.tree.unflatten(structure, moved), None


def _tables(field: Any, h: RealScalarLike, modes: PyTree, wide: bool = False) -> list[dict[str, Array]]:
    """Returns for each leaf of the modes what a step multiplies them, the rest and the noise with."""

    def of(linear: Array, mode: Any) -> dict[str, Array]:
        narrow = dtype_in(linear, mode)
        # computed once, they may have all the precision there is
        dtype = np.promote_types(linear.dtype, jnp.zeros(()).dtype) if wide else narrow
        length = jnp.asarray(h, jnp.finfo(dtype).dtype)
        z = length.astype(dtype) * linear.astype(dtype)
        decay, first = phi(z, 1)
        size = jnp.sqrt(phi(2 * jnp.real(z), 1)[1])
        noise = size
        if jnp.iscomplexobj(z):
            half = jnp.imag(z) / 2
            noise = jax.lax.complex(size * jnp.cos(half), size * jnp.sin(half))
        found = {"decay": decay, "rest": length.astype(dtype) * first, "noise": noise}
        return {name: x.astype(narrow) for name, x in found.items()}

    leaves, structure = jax.tree.flatten(field["linear"]())
    return [of(*pair) for pair in zip(leaves, structure.flatten_up_to(modes))]
