"""The bound of the evidence, by which latent ODEs are trained."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Key, RealScalarLike
from ..models.neural import LatentODE
from ..solvers._solve import solve
from .shooting._windows import Windows


class LatentLoss(eqx.Module):
    r"""The loss of a latent ODE, for `sciml.training.train`: minus the bound of the evidence (ELBO) of a record.

    $$-\mathrm{ELBO} = -\frac{1}{n} \sum_k \Bigl( \sum_j \ln \mathcal N\bigl(y_j; D(z_k(t_j)), \sigma^2\bigr)
    - \beta \, \mathrm{KL}\bigl(q(z_0 \mid y_k) \,\Vert\, \mathcal N(0, 1)\bigr) \Bigr)$$

    over the $n$ records of a batch, each with one $z_0$ drawn from its posterior by the key. Missing values do not
    count.

    Attributes:
        noise: $\sigma$, the deviation of observations.
        weight: $\beta$; 1 for the evidence, less if the latent states should contain more of a record.
        options: Options for `sciml.solve`.

    Args:
        noise: $\sigma$, a number or one for each component of an observation.
        weight: $\beta$.
        options: For `sciml.solve`: `rtol`, `atol`, `dt`, `solver`, `adjoint` and others.

    Source:
        D. P. Kingma and M. Welling, Auto-Encoding Variational Bayes, ICLR 2014; Y. Rubanova, R. T. Q. Chen and
        D. Duvenaud, Latent ODEs for Irregularly-Sampled Time Series, NeurIPS 2019.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import optax
        from sciml import training
        from sciml.models.neural import LatentODE

        phases = jnp.arange(8.0)
        ts = [jnp.linspace(0.0, 3.0, 10)] * 8
        data = training.experiments(ts, [jnp.cos(2 * t + p)[:, None] for t, p in zip(ts, phases)])
        model = LatentODE(1, latent=2, memory=8, width=8, depth=1, key=jax.random.key(0))
        loss = training.LatentLoss(noise=0.3, dt=0.1)
        found = training.train(model, loss, data, optimiser=optax.adam(2e-2), steps=60, progress=False)
        assert found.history.loss[-1] < 0.8 * found.history.loss[0] and "divergence" in found.history.metrics
        ```
    """

    noise: Array
    weight: Float[Array, ""]
    options: dict[str, Any]

    def __init__(self, noise: Any, weight: RealScalarLike = 1.0, **options: Any):
        for name in ("t0", "t1", "saveat", "throw", "y0"):
            if name in options:
                raise TypeError(f"`LatentLoss` sets `{name}` itself. Leave it out.")
        self.noise = jnp.asarray(noise, jnp.result_type(float))
        self.weight = jnp.asarray(weight, jnp.result_type(float))
        self.options = options

    def __call__(self, model: LatentODE, records: Windows, key: Key) -> tuple[Array, dict[str, Array]]:
        """Returns minus the bound, and its two parts, each the mean over the records."""

        def one(key: Key, ts: Array, ys: Array, seen: Array) -> tuple[Array, Array]:
            posterior = model.encode(ts, ys, seen)
            z0 = posterior.sample(key)
            # only of the equation: a gradient passes its input on, and the other networks are not part of it
            zs = solve(model.term, z0, t0=ts[0], t1=ts[-1], saveat=ts, throw=False, **self.options).ys
            found = jax.vmap(model.decode)(zs)
            noise = jnp.broadcast_to(self.noise.astype(ys.dtype), ys.shape)
            logs = -(((found - ys) / noise) ** 2) / 2 - jnp.log(noise) - jnp.log(2 * jnp.pi) / 2
            return jnp.sum(jnp.where(seen, logs, 0)), posterior.divergence()

        keys = jax.random.split(key, len(records.ts))
        likelihoods, divergences = jax.vmap(one)(keys, records.ts, records.ys, records.seen)
        likelihood, divergence = jnp.mean(likelihoods), jnp.mean(divergences)
        loss = self.weight.astype(divergence.dtype) * divergence - likelihood
        return loss, {"likelihood": likelihood, "divergence": divergence}
