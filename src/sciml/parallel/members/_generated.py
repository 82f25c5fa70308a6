"""Members that are made when they are needed, from their number."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


class Generated(eqx.Module):
    """Members that a function makes from their number; made by `generate`.

    Attributes:
        fn: The parameters of member `i` are `fn(i)`.
        count: The number of members.
    """

    fn: Callable[[Any], PyTree]
    count: int = eqx.field(static=True)

    @property
    def params(self) -> PyTree:
        """All members: a PyTree of arrays with a leading axis of `len(members)`."""
        return self.take(np.arange(len(self)))

    def __len__(self) -> int:
        """The number of members."""
        return self.count

    def take(self, ids: np.ndarray) -> PyTree:
        """Returns the members `ids`: a PyTree of arrays with a leading axis of `len(ids)`."""
        made = _make(self.fn, jnp.asarray(ids, jnp.int32))
        return jax.tree.map(_to_numpy, made)


def generate(fn: Callable[[Any], PyTree], n: int) -> Generated:
    """Makes members from their numbers, for `sweep` and `ensemble`.

    For millions of members, or members too large to hold all at once: they are made block by block. A
    member's parameters do not depend on which others are made with it.

    Args:
        fn: The parameters of member `i` are `fn(i)`, a PyTree; `i` is an int32 scalar that JAX traces.
        n: The number of members.

    Returns:
        A `Generated`.

    Raises:
        TypeError: If `fn` cannot be called or `n` is not an integer.
        ValueError: If `n` is not positive or exceeds the range of int32.

    Example:
        ```python
        import jax
        from sciml import parallel

        key = jax.random.key(0)
        members = parallel.generate(lambda i: {"x": jax.random.normal(jax.random.fold_in(key, i), (3,))}, 100)
        result = parallel.sweep(lambda p: p["x"].sum(), members, progress=False)
        assert result.values.shape == (100,)
        ```
    """
    if not callable(fn):
        raise TypeError(f"`generate`: `fn` must be callable, got {type(fn).__name__}.")
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"`generate`: `n`, the number of members, must be an integer, got {n!r}.")
    if not 0 < n < 2**31:
        raise ValueError(f"`generate`: `n`, the number of members, must be positive and below 2**31, got {n}.")
    return Generated(fn, int(n))


@eqx.filter_jit
def _make(fn: Any, ids: Any) -> Any:
    # One after another: how many members a vectorised program makes at a time could show in the last bit.
    static = None

    def one(i):
        nonlocal static
        dynamic, static = eqx.partition(jax.tree.map(_as_array, fn(i)), eqx.is_array)
        return dynamic

    return eqx.combine(jax.lax.map(one, ids), static)


def _to_numpy(x: Any) -> Any:
    return np.asarray(x) if eqx.is_array(x) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def _as_array(x: Any) -> Any:
    return jnp.asarray(x) if eqx.is_array_like(x) else x


def lowered_text(members: Generated) -> str:
    """Returns the program that creates members, which identifies a generator."""
    make: Any = _make
    return make.lower(members.fn, jnp.zeros(1, jnp.int32)).as_text()
