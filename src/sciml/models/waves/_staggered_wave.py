"""`AbstractStaggeredWave`: the common parts of waves of two kinds of fields on a staggered grid."""

import abc
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractPartitioned
from ..._parameters import parameter
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Points
from ._absorbing import Absorber, check_layers, read_layers
from ._staggered_fields import Places, WaveFields
from ._wave_blocks import each_array, to_blocks, to_whole


class AbstractStaggeredWave(AbstractPartitioned):
    """Fields of two kinds that drive each other, with absorbing layers along the sides.

    The first letter of a field's name is its kind: `"Ex"` and `"Hy"`, or `"vx"` and `"sxy"`.

    Attributes:
        kinds: The letters of both kinds; fields of the first move first.
        absorber: The layers.
        places: The positions of the fields.
    """

    kinds: eqx.AbstractClassVar[tuple[str, str]]
    absorber: eqx.AbstractVar[Absorber]
    places: eqx.AbstractVar[Places]

    @property
    def grid(self) -> Grid:
        """The grid."""
        return self.places.grid

    def start(self, fields: Mapping[str, Any] = {}, dtype: Any = None) -> WaveFields:
        """Returns a state, with nothing in the layers and media.

        Args:
            fields: Fields by their names, such as `"Ez"`, `"vx"` or `"sxy"`: a number, an array, or a function of the
                coordinates; the others are 0.
            dtype: The dtype of the state; by default the default floating type.
        """
        dtype = jnp.result_type(float) if dtype is None else dtype
        found = self.places.sample(fields, dtype, type(self).__name__)
        layers = {}
        for name in self.places.names:
            for axis in self._axes(name):
                if any(self.absorber.layers[axis]):
                    shape = self.absorber.memory_shape(self.places.shape(name), axis)
                    layers[key_of(name, axis)] = jnp.zeros(shape, dtype)
        return WaveFields(found, layers, self._media_at_rest(found))

    def points(self, name: str, positions: Any) -> Points:
        """Returns places among the unknowns of a field, for a source or for `points.read(y.fields[name])`.

        Args:
            name: The field.
            positions: The places, of shape `(points, ndim)`, or `(ndim,)` for one.
        """
        return self.places.points(name, positions)

    def to_blocks(self, y: WaveFields) -> WaveFields:
        """Returns a state, or an array of states, as the blocks that `Domain.run` hands to the devices of `domain`.

        The node between two blocks is an unknown of both, and only the outermost blocks have layers.

        Raises:
            ValueError: If the model has no `domain`, its devices do not divide the cells, or a layer is wider than a
                block.
        """
        return each_array(to_blocks, y, self.places, self.absorber.layers)

    def from_blocks(self, y: WaveFields) -> WaveFields:
        """Returns the whole state, or an array of states, from the result of `Domain.run`."""
        return each_array(to_whole, y, self.places, self.absorber.layers)

    def at_centers(self, y: WaveFields, name: str) -> Float[Array, "..."]:
        """Returns a field of a state, or of each of an array of states, at the centres of cells."""
        return self.places.centered(name, y.fields[name])

    def __call__(self, t: RealScalarLike, y: WaveFields, args: Args) -> WaveFields:
        """Returns the time derivative; `t` and `args` go to the sources."""
        first, second = (self._rates(kind, y, self._drive(kind, t, y, args)) for kind in self.kinds)
        rates = first.fields | second.fields
        return WaveFields({name: rates[name] for name in y.fields}, first.layers | second.layers, first.media)

    def first_drive(self, t: RealScalarLike, y: WaveFields, args: Args) -> Any:
        """Returns what drives the fields of the first kind."""
        return self._drive(self.kinds[0], t, y, args)

    def second_drive(self, t: RealScalarLike, y: WaveFields, args: Args) -> Any:
        """Returns what drives the fields of the second kind."""
        return self._drive(self.kinds[1], t, y, args)

    def move_first(self, h: RealScalarLike, y: WaveFields, drive: Any, args: Args) -> WaveFields:
        """Returns a state in which the fields of the first kind have moved, with media and layers."""
        del args
        return y.moved(h, self._rates(self.kinds[0], y, drive, h))

    def move_second(self, h: RealScalarLike, y: WaveFields, drive: Any, args: Args) -> WaveFields:
        """Returns a state in which the fields of the second kind have moved, with the layers."""
        del args
        return y.moved(h, self._rates(self.kinds[1], y, drive, h))

    def spectral_radius(self, t: RealScalarLike, y: WaveFields, args: Args) -> Array:
        """Returns a bound on the modulus of the eigenvalues, in layers and media too."""
        return jnp.max(jnp.abs(self.spectrum(t, y, args)))

    @abc.abstractmethod
    def spectrum(self, t: RealScalarLike, y: WaveFields, args: Args) -> Array:
        """Returns bounds on the eigenvalues, without losses and with them, for the stable steps of `sciml.solve`."""

    def _media_at_rest(self, fields: dict[str, Array]) -> tuple[Any, ...]:
        """The memory of media at the start."""
        return ()

    @abc.abstractmethod
    def _axes(self, name: str) -> tuple[int, ...]:
        """The axes along which there are derivatives in the rate of a field."""

    @abc.abstractmethod
    def _drive(self, kind: str, t: RealScalarLike, y: WaveFields, args: Args) -> Any:
        """The rates of the fields of a kind, with the sources."""

    @abc.abstractmethod
    def _rates(self, kind: str, y: WaveFields, drive: Any, h: RealScalarLike | None = None) -> WaveFields:
        """The rates of the fields of a kind and of what belongs to them; for a step that takes losses implicitly."""


def check_order(order: int, grid: Grid, model: str) -> int:
    """Returns the order of accuracy in space.

    Raises:
        ValueError: If it is unknown, or the grid has too few cells.
    """
    if order not in (2, 4, 6, 8):
        raise ValueError(f"`{model}(order=...)` must be 2, 4, 6 or 8, but is {order!r}.")
    if min(grid.shape) < order:
        raise ValueError(f"`{model}(order={order})` requires at least {order} cells along every axis of {grid}.")
    return order


def read_absorber(layers: int | Mapping[str, int], places: Places, tuned: Any, fastest: Any, model: str) -> Absorber:
    """Returns the layers, tuned to a speed, by default to the largest one held constant."""
    widths = read_layers(places.grid, layers, model)
    check_layers(widths, places.periodic, places.grid, model)
    speed = jax.lax.stop_gradient(fastest) if tuned is None else tuned
    return Absorber(places.grid, widths, parameter(speed), places.blocks)


def eigenvalue_bounds(frequency: Array, loss: Array) -> Array:
    """Returns bounds on the eigenvalues of a wave: undamped and damped."""
    return jax.lax.complex(jnp.stack([jnp.zeros_like(loss), -loss]), jnp.stack([frequency, frequency]))


def key_of(name: str, axis: int) -> str:
    """Returns the name of the memory of a layer for a field along an axis."""
    return f"{name} {'xyz'[axis]}"
