"""Models whose bifurcations are known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import bifurcation

FOLD = 2 / (3 * 3**0.5)  # of the cusp with a = 1, at b = +-FOLD


def cusp(t, y, args):
    return args["b"] + args["a"] * y - y**3


class Brusselator(eqx.Module):
    """Two substances; the steady state (a, b / a) turns unstable at b = 1 + a^2, with the frequency a."""

    a: jax.Array = eqx.field(converter=sciml.parameter)
    b: jax.Array = eqx.field(converter=sciml.parameter)

    def __call__(self, t, y, args):
        x, z = y["x"], y["z"]
        model = sciml.with_dtype(self, x.dtype)
        return {
            "x": model.a - (model.b + 1) * x + x**2 * z,
            "z": model.b * x - x**2 * z,
        }


def rest(a, dtype=None):
    a = jnp.asarray(a, dtype or jnp.result_type(float))
    return {"x": a, "z": 1 / a}


def brusselator(a, dtype=None, **options):
    """The branch of steady states from b = 1."""
    options = {"bounds": (0.5, 4.0), "points": 60} | options
    return bifurcation.continuation(
        Brusselator(a, 1.0), rest(a, dtype), where=lambda model: model.b, throw=False, **options
    )


def bratu(order=24):
    """The equation of combustion between two cold walls; the number of its states changes at mu = 3.5138..."""
    line = sciml.spatial.Chebyshev(order, 0.0, 1.0)

    def model(t, u, mu):
        u = jnp.pad(u, 1)
        return (line.derivative(line.derivative(u)) + mu * jnp.exp(u))[1:-1]

    return model, jnp.zeros(order - 1)


def tolerance(dtype):
    return 1e-8 if np.dtype(dtype) == np.float64 else 2e-4
