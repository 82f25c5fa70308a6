r"""First-order conditional estimation: the curvature about the most probable effects from first derivatives.

Minus the Hessian of $\log p(d \mid b) + \log p(b)$ by the effects $b$ is replaced by its mean over data,

$$B = \sum_j J_j^T F_j J_j + \Omega^{-1}$$

with the derivatives $J_j$ of the parameters of each datum's distribution, and the Fisher information $F_j$ about them.
For a normal datum with mean $f$ and variance $v$ this is
$\nabla f \nabla f^T / v + \frac12 \nabla v \nabla v^T / v^2$.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._derivatives import hessian_of
from .distributions._abstract import AbstractDistribution

METHODS = ("laplace", "focei", "foce")


def first_order_curvature(
    distributions: Callable[[Array], Sequence[AbstractDistribution]],
    log_prior: Callable[[Array], Array],
    data: Sequence[Float[Array, "..."]],
    missing: bool,
) -> Callable[[Array], Array]:
    """Returns the curvature as a function of the free variables of the effects.

    Args:
        distributions: The distributions of one subject's data.
        log_prior: The logarithm of the density of its effects.
        data: The data, one array for each distribution.
        missing: Whether some of them are NaN, which have no information.
    """

    def parameters(z: Array) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
        given = distributions(z)
        fisher = [distribution.information() for distribution in given]  # type: ignore[attr-defined]
        own = [{name: getattr(d, name) for name in of} for d, of in zip(given, fisher, strict=True)]
        return own, fisher

    def curvature(z: Array) -> Array:
        slopes, fisher = jax.jacfwd(parameters, has_aux=True)(z)
        total = -hessian_of(log_prior, z)(z)
        for x, slope, of in zip(data, slopes, fisher, strict=True):
            for name, information in of.items():
                weight = jnp.broadcast_to(information.astype(z.dtype), x.shape)
                weight = jnp.where(jnp.isnan(x), 0, weight) if missing else weight
                rows = jnp.broadcast_to(slope[name].astype(z.dtype), (*x.shape, z.size)).reshape(-1, z.size)
                total = total + (rows * weight.reshape(-1, 1)).T @ rows
        return total

    return curvature


def check_information(given: Sequence[AbstractDistribution], method: str) -> None:
    """Checks that distributions have a Fisher information, and scales where they are to be those of typical effects.

    Raises:
        TypeError: Naming one that has not.
    """
    for distribution in given:
        name = type(distribution).__name__
        if not callable(getattr(distribution, "information", None)):
            raise TypeError(
                f'`method="{method}"` needs the Fisher information of the data\'s distribution, which `{name}` does '
                "not give: take `Normal`, `LogNormal` or `PoissonCounts`, a class with a method `information`, or "
                '`method="laplace"`.'
            )
        if method == "foce" and not (hasattr(distribution, "location") and hasattr(distribution, "scale")):
            raise TypeError(
                f'`method="foce"` is for noise about a prediction, a distribution with `location` and `scale`, not for '
                f'`{name}`: take `method="focei"`.'
            )
