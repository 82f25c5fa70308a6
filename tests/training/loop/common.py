"""Models and losses that the tests of `train` share."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from sciml import training


class Line(eqx.Module):
    slope: jax.Array
    offset: jax.Array

    def __call__(self, x):
        return self.slope * x + self.offset


def line(dtype=float):
    return Line(jnp.asarray(0.5, dtype), jnp.asarray(0.25, dtype))


def points(n=24, dtype=float):
    x = np.linspace(-1.0, 1.0, n)
    return {"x": x.astype(dtype), "y": (2.0 * x - 1.0 + 0.1 * np.cos(9 * x)).astype(dtype)}


def squares(model, batch, key):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


def to_one(model, batch, key):
    """Needs no data; gradient descent goes to one."""
    return (model - 1.0) ** 2


def quiet(model, loss, data=None, **options):
    options = dict(optimiser=optax.sgd(0.1), progress=False) | options
    return training.train(model, loss, data, **options)


def same_bits(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in leaves)
