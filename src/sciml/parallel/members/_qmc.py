"""Members that fill a box of parameters evenly, by scipy's quasi-Monte Carlo."""

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import check_key
from ..._types import Key


def sobol(n: int, *, key: Key | None = None, **ranges: Any) -> dict[str, np.ndarray]:
    r"""Makes `n` members that fill a box: the first `n` points of a Sobol' sequence.

    The points cover the box far more evenly than random ones: means over them converge nearly as $1/n$ for
    smooth functions, where those over random points converge as $1/\sqrt{n}$. Choose a power of two: the
    sequence is balanced there. A longer sequence with the same key begins with the shorter one.

    Args:
        n: The number of members.
        key: A random key, which scrambles the sequence (Owen): means are then unbiased, and no point is on the edge.
            Without one the sequence begins in the corner of all low ends.
        ranges: A parameter each: a pair `(low, high)`, or a distribution with a method `ppf`, such as
            `scipy.stats.loguniform(0.1, 100)`.

    Returns:
        A dictionary with an array of length `n` for each parameter, of JAX's default floating dtype.

    Raises:
        ValueError: If there is no range, one is empty or not finite, or `n` is not positive.
        TypeError: If a range is neither a pair of numbers nor a distribution.

    Example:
        ```python
        import jax
        from scipy import stats
        from sciml import parallel

        members = parallel.sobol(64, key=jax.random.key(0), beta=(0.1, 0.5), mu=stats.loguniform(0.1, 100))
        result = parallel.sweep(lambda p: p["beta"] * p["mu"], members, progress=False)
        assert result.n == 64 and members["beta"].min() >= 0.1
        ```

    Reference:
        S. Joe and F. Y. Kuo, Constructing Sobol sequences with better two-dimensional projections,
        SIAM J. Sci. Comput. 30 (2008); A. B. Owen, Scrambling Sobol' and Niederreiter-Xing points,
        J. Complexity 14 (1998).
    """
    from scipy.stats import qmc

    n, scales = _check(n, ranges, where="sobol")
    engine = qmc.Sobol(len(scales), scramble=key is not None, rng=None if key is None else _generator(key, "sobol"))
    return _scaled(engine.random_base2(math.ceil(math.log2(n)))[:n], scales, where="sobol")


def latin_hypercube(n: int, *, key: Key, **ranges: Any) -> dict[str, np.ndarray]:
    r"""Makes `n` members in a box, of which each parameter's values are evenly spread.

    Each range is cut into `n` parts of equal probability, and every part holds one member.

    Args:
        n: The number of members.
        key: A random key.
        ranges: A parameter each, as in `sobol`: a pair `(low, high)` or a distribution with a method `ppf`.

    Returns:
        A dictionary with an array of length `n` for each parameter, of JAX's default floating dtype.

    Raises:
        ValueError: If there is no range, one is empty or not finite, or `n` is not positive.
        TypeError: If a range is neither a pair of numbers nor a distribution.

    Example:
        ```python
        import jax
        import numpy as np
        from sciml import parallel

        members = parallel.latin_hypercube(10, key=jax.random.key(0), a=(0.0, 10.0), b=(-1.0, 1.0))
        assert np.floor(np.sort(members["a"])).tolist() == list(range(10))
        ```

    Reference:
        M. D. McKay, R. J. Beckman and W. J. Conover, A comparison of three methods for selecting values of input
        variables in the analysis of output from a computer code, Technometrics 21 (1979).
    """
    from scipy.stats import qmc

    n, scales = _check(n, ranges, where="latin_hypercube")
    engine = qmc.LatinHypercube(len(scales), rng=_generator(key, "latin_hypercube"))
    return _scaled(engine.random(n), scales, where="latin_hypercube")


def _generator(key: Key, where: str) -> np.random.Generator:
    key = check_key(key, where)
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.random.default_rng(np.asarray(data).astype(np.uint32).reshape(-1))


def _check(n: Any, ranges: dict[str, Any], *, where: str) -> tuple[int, dict[str, Any]]:
    """Returns `n` as an int, and for each parameter a function from [0, 1] to its values."""
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(f"`{where}`: `n`, the number of members, must be an integer, got {n!r}.") from None
    if count <= 0:
        raise ValueError(f"`{where}`: `n`, the number of members, must be positive, got {count}.")
    if not ranges:
        raise ValueError(f"`{where}` requires at least one range, such as `{where}(64, ..., beta=(0.1, 0.5))`.")
    return count, {name: _scale(name, given, where) for name, given in ranges.items()}


def _scale(name: str, given: Any, where: str) -> Any:
    if callable(getattr(given, "ppf", None)):
        return given.ppf
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        raise TypeError(
            f"`{where}`: `{name}` must be a pair of numbers `(low, high)`, or a distribution with a method `ppf` such "
            f"as `scipy.stats.loguniform(0.1, 100)`, got {given!r}."
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"`{where}`: `{name}` must be a pair of finite numbers with low < high, got ({low}, {high}).")
    return lambda u: low + (high - low) * u


def _scaled(points: np.ndarray, scales: dict[str, Any], *, where: str) -> dict[str, np.ndarray]:
    dtype = jnp.result_type(float)
    found = {name: np.asarray(scale(points[:, i]), dtype) for i, (name, scale) in enumerate(scales.items())}
    for name, values in found.items():
        if not np.isfinite(values).all():
            raise ValueError(
                f"`{where}`: `{name}` is not finite at the edge of its distribution. Pass a `key`, which moves "
                "the points off the edge, or a distribution with finite ends."
            )
    return found
