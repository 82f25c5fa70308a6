"""The latent ODE: a variational autoencoder of trajectories."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._checks import check_count, check_key
from ..._interfaces._model import AbstractModel
from ..._jax._loops import scan
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._networks import Network
from ._universal import NeuralTerm


class Posterior(NamedTuple):
    r"""A normal distribution of the latent state at the start, $\mathcal N(\mu, \mathrm{diag}\, \sigma^2)$.

    Attributes:
        mean: $\mu$.
        log_deviation: $\ln \sigma$.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural._latent_ode import Posterior

        prior = Posterior(jnp.zeros(3), jnp.zeros(3))
        assert prior.divergence() == 0.0 and prior.sample(jax.random.key(0)).shape == (3,)
        ```
    """

    mean: Float[Array, " latent"]
    log_deviation: Float[Array, " latent"]

    def sample(self, key: Key) -> Float[Array, " latent"]:
        r"""Returns $\mu + \sigma \epsilon$ with a normal $\epsilon$ of the key."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_deviation) * noise

    def divergence(self) -> Float[Array, ""]:
        r"""Returns the divergence from the standard normal, $\tfrac12 \sum (\sigma^2 + \mu^2 - 1 - \ln \sigma^2)$."""
        return jnp.sum(jnp.expm1(2 * self.log_deviation) + self.mean**2 - 2 * self.log_deviation) / 2


class LatentODE(AbstractModel):
    r"""A latent ODE: trajectories of something that is not seen itself, coded and decoded by networks.

    $$z(t_0) \sim q_\phi(z_0 \mid y_1, \ldots, y_n), \qquad \dot z = N_\theta(z), \qquad
    \hat y(t) = D_\theta(z(t))$$

    A recurrent network reads a record from its end to its start, however irregular its times are and whatever is
    missing in it, and gives the distribution of the latent state at the start. `model(t, z, args)` is the equation of
    the latent state, for `sciml.solve`; `sciml.training.LatentLoss` trains all of it by the bound of the evidence
    (ELBO).

    Attributes:
        cell: The recurrent network.
        head: From its state to the posterior.
        term: $N_\theta$.
        decoder: $D_\theta$.

    Args:
        observed: The number of components of an observation.
        latent: The number of components of $z$.
        memory: The number of components of the recurrent network's state.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or a state has another shape.

    Source:
        R. T. Q. Chen, Y. Rubanova, J. Bettencourt and D. Duvenaud, Neural Ordinary Differential Equations, NeurIPS
        2018; Y. Rubanova, R. T. Q. Chen and D. Duvenaud, Latent ODEs for Irregularly-Sampled Time Series, NeurIPS
        2019.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import LatentODE

        ts = jnp.linspace(0.0, 1.0, 6)
        ys = jnp.cos(ts)[:, None]
        model = LatentODE(1, latent=2, memory=8, width=8, key=jax.random.key(0))
        posterior = model.encode(ts, ys, jnp.isfinite(ys))
        sol = sciml.solve(model, posterior.mean, t0=0.0, t1=1.0, saveat=ts)
        assert jax.vmap(model.decode)(sol.ys).shape == ys.shape
        ```
    """

    cell: eqx.nn.GRUCell
    head: Network
    term: NeuralTerm
    decoder: Network

    def __init__(
        self,
        observed: int,
        latent: int,
        memory: int = 32,
        width: int = 32,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        key: Key,
    ):
        observed = check_count(observed, "observed", "LatentODE")
        latent, memory = check_count(latent, "latent", "LatentODE"), check_count(memory, "memory", "LatentODE")
        keys = jax.random.split(check_key(key, "LatentODE"), 4)
        options: dict[str, Any] = dict(width=width, depth=depth, activation=activation)
        self.cell = eqx.nn.GRUCell(2 * observed + 1, memory, key=keys[0])
        self.head = Network(memory, 2 * latent, depth=0, key=keys[1])
        self.term = NeuralTerm(latent, latent, **options, key=keys[2])
        self.decoder = Network(latent, observed, **options, key=keys[3])

    def encode(
        self, ts: Float[Array, " times"], ys: Float[Array, "times observed"], seen: Bool[Array, "times observed"]
    ) -> Posterior:
        """Returns the distribution of the latent state at the first time.

        Args:
            ts: The times.
            ys: The observations; missing ones do not matter, NaN included.
            seen: Whether each observation exists. Times without observations have no effect, as at the padded end of a
                record.
        """
        p = with_dtype(self, ys.dtype)
        gaps = jnp.diff(ts, append=ts[-1:]).astype(ys.dtype)  # to what was read before, the observation that follows

        def read(memory: Array, row: tuple) -> tuple[Array, None]:
            gap, y, there = row
            told = jnp.concatenate([jnp.where(there, y, 0), there.astype(y.dtype), gap[None]])
            return jnp.where(jnp.any(there), p.cell(told, memory), memory), None

        start = jnp.zeros(self.cell.hidden_size, ys.dtype)
        memory, _ = scan(read, start, (gaps, ys, seen), reverse=True)
        return Posterior(*jnp.split(p.head(memory), 2))

    def decode(self, z: Float[Array, " latent"]) -> Float[Array, " observed"]:
        """Returns the observation of a latent state."""
        return with_dtype(self.decoder, z.dtype)(z)

    def __call__(self, t: RealScalarLike, y: Float[Array, " latent"], args: Args) -> Float[Array, " latent"]:
        """Returns the rates of the latent state; `args` is not used."""
        return self.term(t, y, args)
