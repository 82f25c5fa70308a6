"""The source of a wave: a profile in space times a signal in time."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Points
from ._staggered_fields import Places

Source = Callable[[RealScalarLike, Args], dict[str, Array]]


class FieldSource(eqx.Module):
    r"""A source $a(x)\, s(t)$ of one field of `Maxwell` or `ElasticWave`.

    The field's name sets the kind of source: for `"Ez"` it is a current density, for `"Hx"` a magnetic one, for `"vx"`
    a force density, for `"sxx"` a moment rate per volume. A sum of several is a list of them.

    Attributes:
        name: The field.
        profile: $a$, an array that broadcasts to the field, or `Points` among its unknowns, as `model.points(name,
            positions)` returns them: then it is a sum of $\delta$ functions.
        signal: $s$, a function of time such as a `Ricker` or a `Sampled`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import FieldSource, Maxwell, Ricker
        from sciml.spatial import Grid

        model = Maxwell(Grid((8, 8)), polarization="Ez")
        dipole = FieldSource("Ez", model.points("Ez", [0.5, 0.5]), Ricker(1.0))
        assert jnp.isclose(jnp.sum(dipole(1.5, None)["Ez"]) / 64, 1.0)
        ```
    """

    name: str = eqx.field(static=True)
    profile: Points | Parameter
    signal: Callable[[Any], Any]

    def __init__(self, name: str, profile: Any, signal: Any):
        if not callable(signal):
            raise TypeError(f"`FieldSource(signal=...)` must be a function of time, but is {signal!r}.")
        self.name, self.signal = name, signal
        self.profile = profile if isinstance(profile, Points) else parameter(profile)

    def __call__(self, t: RealScalarLike, args: Args) -> dict[str, Float[Array, "..."]]:
        """Returns the density of the source at a time, by the name of its field."""
        del args
        value = jnp.asarray(self.signal(t))
        if isinstance(self.profile, Points):
            return {self.name: self.profile.spread(jnp.broadcast_to(value, self.profile.positions.shape[:-1]))}
        return {self.name: with_dtype(self.profile, value.dtype) * value}


def read_sources(source: Any, names: tuple[str, ...], model: str) -> tuple[Source, ...]:
    """Returns sources as a tuple of functions.

    Raises:
        TypeError: If one is not a function.
        ValueError: If one is of a field that there is not.
    """
    sources = () if source is None else tuple(source) if isinstance(source, Sequence) else (source,)
    for one in sources:
        if not callable(one):
            raise TypeError(f"`{model}(source=...)` must be `FieldSource`s or functions (t, args), but has {one!r}.")
        if isinstance(one, FieldSource) and one.name not in names:
            raise ValueError(
                f"`{model}(source=...)` has a source for {one.name!r}, but the fields are {', '.join(names)}."
            )
    return sources


def densities(
    sources: tuple[Source, ...], t: RealScalarLike, args: Args, dtype: Any, places: Places
) -> dict[str, Array]:
    """Returns the sum of what sources give at a time, by the names of the fields; of a block what belongs to it."""
    total: dict[str, Array] = {}
    for source in sources:
        for name, value in _here(source, t, args, places).items():
            value = value.astype(dtype)
            total[name] = total[name] + value if name in total else value
    return total


def _here(source: Source, t: RealScalarLike, args: Args, places: Places) -> dict[str, Array]:
    split = any(map(places.split, range(places.grid.ndim)))
    if split and isinstance(source, FieldSource) and isinstance(source.profile, Points):
        values = jnp.broadcast_to(jnp.asarray(source.signal(t)), source.profile.positions.shape[:-1])
        return {source.name: spread(source.profile, values, source.name, places)}
    return {name: places.part(name, jnp.asarray(value)) for name, value in source(t, args).items()}


def spread(points: Points, values: Array, name: str, places: Places) -> Array:
    """Returns the density of points among the unknowns of a field, of a block what belongs to it."""
    return points.spread(values, first=[places.first(a) for a in range(places.grid.ndim)], shape=places.shape(name))
