"""The priors of PEtab, as densities."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._tables import EstimatedParameter

KINDS = (
    "uniform", "normal", "laplace", "logNormal", "logLaplace",
    "parameterScaleUniform", "parameterScaleNormal", "parameterScaleLaplace",
)  # fmt: skip


_TRUNCATED = {
    "normal": "norm", "laplace": "laplace", "cauchy": "cauchy", "chisquare": "chi2", "exponential": "expon",
    "gamma": "gamma", "rayleigh": "rayleigh", "uniform": "uniform",
}  # fmt: skip
"""The priors of version 2, with SciPy's names; `log-` before one is for the logarithm."""


def truncated_prior(kind: str, numbers: tuple[float, ...], lower: float, upper: float) -> tuple[str, tuple[float, ...]]:
    """Returns a prior of version 2, which is normalised between its bounds, with the logarithm of its mass there.

    Raises:
        ValueError: If there is no such prior.
    """
    import scipy.stats  # late: importing it sets a filter for warnings

    shape = kind.removeprefix("log-")
    if shape not in _TRUNCATED:
        known = ", ".join(_TRUNCATED)
        raise ValueError(f"the prior `{kind}` is not supported; supported priors are {known}, also with `log-`.")
    with np.errstate(divide="ignore"):
        if shape == "uniform":  # the bounds of `log-uniform` are not logarithms
            numbers = tuple(np.log(numbers)) if kind != shape else numbers
            numbers = (numbers[0], numbers[1] - numbers[0])
        ends = np.log([max(lower, 0.0), max(upper, 0.0)]) if kind != shape else np.array([lower, upper])
    distribution = getattr(scipy.stats, _TRUNCATED[shape])
    scale = {"exponential": (0.0,), "rayleigh": (0.0,)}.get(shape, ())
    arguments = (numbers[0], 0.0, numbers[1]) if shape == "gamma" else (*scale, *numbers)
    below, above = distribution.cdf(ends, *arguments)
    return f"truncated {kind}", (*map(float, arguments), float(np.log(above - below)))


def on_scale_of(row: EstimatedParameter, value: float) -> float:
    """A value on a parameter's scale."""
    if row.scale == "lin":
        return value
    with np.errstate(all="ignore"):
        return float(np.log(value) if row.scale == "log" else np.log10(value))


def own_value(row: EstimatedParameter, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """A parameter in its own unit."""
    return x if row.scale == "lin" else jnp.exp(x * _factor(row))


def _factor(row: EstimatedParameter) -> float:
    return {"log": 1.0, "log10": math.log(10.0)}[row.scale]


def log_slope(row: EstimatedParameter, x: Float[Array, ""]) -> Float[Array, ""]:
    """The logarithm of the derivative of a parameter by its value on its scale."""
    return jnp.zeros_like(x) if row.scale == "lin" else x * _factor(row) + math.log(_factor(row))


def log_prior_of(row: EstimatedParameter, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The logarithm of a prior's density at values on the parameter's scale.

    Raises:
        ValueError: If there is no such prior.
    """
    assert row.prior is not None
    kind, numbers = row.prior
    if kind.startswith("truncated "):
        shape, value, logarithm = kind.removeprefix("truncated "), x, jnp.zeros_like(x)
        if shape.startswith("log-"):
            shape, value, logarithm = shape.removeprefix("log-"), jnp.log(x), -jnp.log(x)
        return logarithm + _log_density(_TRUNCATED[shape], value, *numbers[:-1]) - numbers[-1]
    if kind not in KINDS or len(numbers) != 2:
        raise ValueError(
            f"the prior of `{row.name}` is `{kind}` with {len(numbers)} numbers; supported priors are "
            f"{', '.join(KINDS)}."
        )
    a, b = numbers
    on_scale = kind.startswith("parameterScale")
    value = x if on_scale else own_value(row, x)
    shape = kind.removeprefix("parameterScale").lower()
    if shape == "uniform":
        inside = (value >= a) & (value <= b)
        return jnp.where(inside, -math.log(b - a), -jnp.inf).astype(x.dtype)
    logarithm = jnp.zeros_like(x)
    if shape.startswith("log"):
        logarithm, value = -jnp.log(value), jnp.log(value)
    if shape.endswith("normal"):
        return logarithm - 0.5 * ((value - a) / b) ** 2 - math.log(b) - 0.5 * math.log(2 * math.pi)
    return logarithm - jnp.abs(value - a) / b - math.log(2 * b)


def _log_density(name: str, x: Float[Array, "..."], *numbers: float) -> Float[Array, "..."]:
    """The logarithm of a density of SciPy."""
    if name == "rayleigh":
        z = x / numbers[1]
        return jnp.log(z / numbers[1]) - 0.5 * z**2
    return getattr(jax.scipy.stats, name).logpdf(x, *numbers)


def log_prior(rows: Sequence[EstimatedParameter], x: Float[Array, " p"]) -> Float[Array, ""]:
    """The sum over all parameters with a prior; parameters with the same prior, as in a network, are one operation."""
    same: dict[tuple, list[int]] = {}
    for i, row in enumerate(rows):
        if row.prior is not None:
            same.setdefault((row.scale, row.prior), []).append(i)
    parts = [jnp.sum(log_prior_of(rows[found[0]], x[np.array(found)])) for found in same.values()]
    return sum(parts, jnp.zeros((), x.dtype))
