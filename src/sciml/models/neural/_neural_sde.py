"""The neural stochastic differential equation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count, check_key
from ..._interfaces._stochastic import AbstractStochastic, check_noise
from ..._types import Args, Key, RealScalarLike
from ._clocks import AbstractClock
from ._term import NeuralTerm, sizes


class NeuralSDE(AbstractStochastic):
    r"""A neural SDE: networks give the drift and the strength of the noise.

    $$\mathrm{d}y = f_\theta(t, y) \, \mathrm{d}t + g_\theta(t, y) \, \mathrm{d}W$$

    The state is a vector, shape `(size,)`. What $W$ is says `noise`, as for `sciml.Stochastic`. With "diagonal" and
    "additive" noise every component has a Brownian motion of its own, the sign of $g$ means nothing, and its elements
    are positive, $\ln(1 + e^N)$ of the network's outputs $N$, times their unit; with "additive" noise $g$ is a
    constant, and methods are more accurate.

    Attributes:
        drift_term: The network of the drift.
        diffusion_term: The network of the noise.
        noise: "diagonal", "scalar", "additive" or "general".

    Args:
        size: The number of components of the state.
        noise: One of these.
        brownian: The number of Brownian motions of "general" noise.
        width: The number of neurons in each hidden layer of both networks.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        clock: What the networks are told of time: `Elapsed`, `Seasons`, or None.
        scale: The size of the state's components, a number or one for each.
        unit: The size of their rates, likewise.
        noise_unit: The size of the noise, in units of the state per sqrt(time), likewise.
        interpretation: "ito" or "stratonovich".
        key: A random key, for the weights at the start. That of the noise is an argument of `sciml.solve`.

    Raises:
        ValueError: If a number is not positive, a word is none of these, or the state has another shape.

    Source:
        X. Li, T.-K. L. Wong, R. T. Q. Chen and D. Duvenaud, Scalable Gradients for Stochastic Differential Equations,
        AISTATS 2020; P. Kidger, J. Foster, X. Li and T. Lyons, Neural SDEs as Infinite-Dimensional GANs, ICML 2021.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import NeuralSDE

        model = NeuralSDE(2, width=8, noise_unit=0.2, key=jax.random.key(0))
        keys = jax.random.split(jax.random.key(1), 10)
        ends = jax.vmap(lambda key: sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, dt=0.05, key=key).ys[-1])(keys)
        assert ends.shape == (10, 2)
        ```
    """

    drift_term: NeuralTerm
    diffusion_term: NeuralTerm | Float[Array, " size"]
    noise: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    noise_unit: tuple[float, ...] = eqx.field(static=True)
    _interpretation: str = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        noise: str = "diagonal",
        *,
        brownian: int | None = None,
        width: int = 32,
        depth: int = 2,
        activation: Callable = jnp.tanh,
        clock: AbstractClock | None = None,
        scale: Any = 1.0,
        unit: Any = 1.0,
        noise_unit: Any = 1.0,
        interpretation: str = "ito",
        key: Key,
    ):
        self.size = size = check_count(size, "size", "NeuralSDE")
        self.noise, self._interpretation = noise, interpretation
        check_noise(self)
        if (brownian is None) != (noise != "general"):
            raise ValueError(
                f"`brownian`, the number of Brownian motions, goes with `noise='general'`, and only with it; got "
                f"brownian={brownian!r} and noise={noise!r}."
            )
        columns = 1 if brownian is None else check_count(brownian, "brownian", "NeuralSDE")
        self.noise_unit = sizes(noise_unit, size, "noise_unit")
        keys = jax.random.split(check_key(key, "NeuralSDE"))
        options = dict(width=width, depth=depth, activation=activation, clock=clock, scale=scale)
        self.drift_term = NeuralTerm(size, size, unit=unit, **options, key=keys[0])
        if noise == "additive":
            self.diffusion_term = jnp.zeros(size, jnp.result_type(float))
        else:
            self.diffusion_term = NeuralTerm(size, size * columns, **options, key=keys[1])

    @property
    def interpretation(self) -> str:
        """In what sense the integral over the noise is meant."""
        return self._interpretation

    def drift(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, " size"]:
        """Returns the drift; `args` is not used."""
        return self.drift_term(t, y, args)

    def diffusion(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, "..."]:
        """Returns the noise, of shape `(size,)`, or `(size, brownian)`; `args` is not used."""
        unit = jnp.asarray(self.noise_unit, y.dtype)
        if isinstance(self.diffusion_term, Array):
            return unit * jax.nn.softplus(self.diffusion_term.astype(y.dtype))
        found = self.diffusion_term(t, y, args)
        if self.noise == "general":
            return unit[:, None] * found.reshape(self.size, -1)
        return unit * (jax.nn.softplus(found) if self.noise == "diagonal" else found)
