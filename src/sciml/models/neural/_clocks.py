"""Clocks: the time features of a network."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count
from ..._types import RealScalarLike


class AbstractClock(eqx.Module):
    """The time features of a network that depends on time: some numbers in addition to the state.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.neural._clocks import AbstractClock

        class Decades(AbstractClock):
            @property
            def size(self):
                return 1

            def __call__(self, t, dtype):
                return jnp.log10(jnp.asarray(t, dtype))[None]

        assert Decades()(100.0, jnp.float32) == 2.0
        ```
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many numbers there are."""

    @abc.abstractmethod
    def __call__(self, t: RealScalarLike, dtype: Any) -> Float[Array, " size"]:
        """Returns them at a time, in a dtype."""


class Elapsed(AbstractClock):
    r"""The time itself, $t / \tau$.

    Attributes:
        unit: $\tau$, about how long a solution lasts: networks are made for numbers of the size of one.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural import Elapsed, NeuralODE

        model = NeuralODE(2, clock=Elapsed(20.0), key=jax.random.key(0))
        assert model(5.0, jnp.ones(2), None).shape == (2,)
        ```
    """

    unit: float = eqx.field(default=1.0, static=True)

    @property
    def size(self) -> int:
        """One."""
        return 1

    def __call__(self, t: RealScalarLike, dtype: Any) -> Float[Array, " size"]:
        """Returns the time in its unit."""
        return (jnp.asarray(t, dtype) / self.unit)[None]


class Seasons(AbstractClock):
    r"""Periodic features, $\cos(2 \pi k t / T)$ and $\sin(2 \pi k t / T)$ for $k = 1, \ldots, n$.

    A network with these features is periodic in time, also beyond the training times.

    Attributes:
        period: $T$.
        harmonics: $n$.

    Raises:
        ValueError: If `harmonics` is not a positive number.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural import NeuralODE, Seasons

        model = NeuralODE(2, clock=Seasons(period=12.0), key=jax.random.key(0))
        assert jnp.allclose(model(1.0, jnp.ones(2), None), model(13.0, jnp.ones(2), None), atol=1e-5)
        ```
    """

    period: float = eqx.field(default=1.0, static=True)
    harmonics: int = eqx.field(default=1, static=True)

    def __check_init__(self):
        check_count(self.harmonics, "harmonics", "Seasons")

    @property
    def size(self) -> int:
        """Two for each harmonic."""
        return 2 * self.harmonics

    def __call__(self, t: RealScalarLike, dtype: Any) -> Float[Array, " size"]:
        """Returns the cosines, then the sines."""
        angles = (2 * jnp.pi / self.period) * jnp.asarray(t, dtype) * jnp.arange(1, self.harmonics + 1).astype(dtype)
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
