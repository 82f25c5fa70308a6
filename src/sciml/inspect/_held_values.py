"""How the values of a program are held while it is searched: as they are, or those of all devices side by side.

Within a `jax.shard_map` a value differs from device to device, and devices take part in each other's operations. So the
search has the values of all of them, with an axis of devices in front, and runs every operation on all devices at once,
again within a `jax.shard_map`.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from .._jax._interpreters import ClosedJaxpr, jaxpr_as_fun
from .._jax._vma import to_varying
from .._jax.programs import _names as names, programs_within, run_anew, run_equation
from ._flat_program import Fixed, FlatProgram, Op, Ref


class AbstractHolding(abc.ABC):
    """How values are held, and how functions of them run."""

    @abc.abstractmethod
    def held(self, x: Any) -> Any:
        """Returns a value that all devices have."""

    @abc.abstractmethod
    def of_device(self, x: Any, device: int) -> Any:
        """Returns the value of one device."""

    @abc.abstractmethod
    def alone(self, values: Sequence[Any], device: int) -> list[Any]:
        """Returns values with those of one device on all."""

    @abc.abstractmethod
    def by_device(self, x: Any) -> np.ndarray:
        """Returns a value with an axis of devices in front."""

    @abc.abstractmethod
    def compiled(self, fn: Callable) -> Callable:
        """Returns a function of one device's values as a function of held ones."""

    @abc.abstractmethod
    def varying(self, tree: Any) -> Any:
        """Returns values as what a loop carries from iteration to iteration, within a function that is compiled."""

    @abc.abstractmethod
    def function(self, closed: ClosedJaxpr) -> Callable[..., list]:
        """Returns a program as a function of one device's values."""

    @abc.abstractmethod
    def all_results(self, flat: FlatProgram) -> Callable[[Sequence[Any]], list[list[Any]]] | None:
        """Returns the results of all operations as a function of constants and inputs; None: run them one by one."""

    def value_of(self, x: Ref, known: Sequence[Any]) -> Any:
        """Returns the held value of an operand."""
        return self.held(jnp.asarray(x.value)) if isinstance(x, Fixed) else known[x]


class AsTheyAre(AbstractHolding):
    """Outside of `jax.shard_map`."""

    def held(self, x: Any) -> Any:
        """As `AbstractHolding.held`."""
        return x

    def of_device(self, x: Any, device: int) -> Any:
        """As `AbstractHolding.of_device`."""
        return x

    def alone(self, values: Sequence[Any], device: int) -> list[Any]:
        """As `AbstractHolding.alone`."""
        return list(values)

    def by_device(self, x: Any) -> np.ndarray:
        """As `AbstractHolding.by_device`."""
        return np.asarray(x)[None]

    def compiled(self, fn: Callable) -> Callable:
        """As `AbstractHolding.compiled`."""
        return jax.jit(fn)

    def varying(self, tree: Any) -> Any:
        """As `AbstractHolding.varying`."""
        return tree

    def function(self, closed: ClosedJaxpr) -> Callable[..., list]:
        """As `AbstractHolding.function`."""
        return jaxpr_as_fun(closed)

    def all_results(self, flat: FlatProgram) -> None:
        """As `AbstractHolding.all_results`: what is large need not be kept, then."""


class OverDevices(AbstractHolding):
    """Within a `jax.shard_map`: values with an axis of devices in front.

    Args:
        eqn: The equation of the `jax.shard_map`.
    """

    def __init__(self, eqn: Any):
        self.eqn, mesh = eqn, eqn.params["mesh"]
        self.mesh = mesh if isinstance(mesh, jax.sharding.Mesh) else jax.sharding.get_mesh()  # that of `jax.set_mesh`
        manual = eqn.params["manual_axes"] if "manual_axes" in eqn.params else eqn.params["newly_manual_axes"]
        self.axes = tuple(name for name in self.mesh.axis_names if name in manual)
        self.checked = eqn.params["check_vma"]
        self.count = int(np.prod([self.mesh.shape[name] for name in self.axes]))

    def coordinates(self, device: int) -> dict[str, int]:
        """Returns the place of a device in the mesh."""
        place = np.unravel_index(device, [self.mesh.shape[name] for name in self.axes])
        return {name: int(i) for name, i in zip(self.axes, place)}

    def split(self, operands: Sequence[Any]) -> list[Any]:
        """Returns operands of the `jax.shard_map` as each device gets them."""

        def alone(*xs):
            return [x[None] for x in xs]

        return jax.jit(self._mapped(alone, tuple(self.eqn.params["in_specs"]), check=False))(*operands)

    def _mapped(self, fn: Callable, in_specs: Any, check: bool) -> Callable:
        how = dict(mesh=self.mesh, axis_names=set(self.axes), check_vma=check)
        return jax.shard_map(fn, in_specs=in_specs, out_specs=PartitionSpec(self.axes), **how)

    def held(self, x: Any) -> Any:
        """As `AbstractHolding.held`."""
        x = jnp.broadcast_to(jnp.asarray(x)[None], (self.count, *jnp.shape(x)))
        return jax.device_put(x, NamedSharding(self.mesh, PartitionSpec(self.axes)))

    def of_device(self, x: Any, device: int) -> Any:
        """As `AbstractHolding.of_device`."""
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):  # random keys
            rows = np.asarray(jax.random.key_data(x))
            return jax.random.wrap_key_data(jnp.asarray(rows[device]), impl=jax.random.key_impl(x))
        return jnp.asarray(np.asarray(x)[device])

    def alone(self, values: Sequence[Any], device: int) -> list[Any]:
        """As `AbstractHolding.alone`."""
        return [self.held(self.of_device(x, device)) for x in values]

    def by_device(self, x: Any) -> np.ndarray:
        """As `AbstractHolding.by_device`."""
        return np.asarray(x)

    def compiled(self, fn: Callable) -> Callable:
        """As `AbstractHolding.compiled`."""

        def one(*held):
            return jax.tree.map(lambda x: self.varying(x)[None], fn(*jax.tree.map(lambda x: x[0], held)))

        return jax.jit(self._mapped(one, PartitionSpec(self.axes), self.checked))

    def varying(self, tree: Any) -> Any:
        """As `AbstractHolding.varying`."""
        return to_varying(tree, self.axes) if self.checked else tree

    def function(self, closed: ClosedJaxpr) -> Callable[..., list]:
        """As `AbstractHolding.function`."""
        flat = FlatProgram(closed.jaxpr)

        def run(*args):
            known, _ = self._run(flat, (*closed.consts, *args))
            return [self._read(x, known) for x in flat.results]

        return run

    def all_results(self, flat: FlatProgram) -> Callable[[Sequence[Any]], list[list[Any]]]:
        """As `AbstractHolding.all_results`."""
        return self.compiled(lambda given: self._run(flat, given)[1])

    def _read(self, x: Ref, known: Sequence[Any]) -> Any:
        return self.varying(jnp.asarray(x.value) if isinstance(x, Fixed) else known[x])

    def _run(self, flat: FlatProgram, given: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Returns the values of a program on one device, and the results of each operation."""
        known, results = [*given, *[None] * (flat.size - flat.inputs)], []
        for op in flat.ops:
            out = [self.varying(x) for x in self._operation(op, [self._read(x, known) for x in op.inputs])]
            results.append(out)
            for number, value in zip(op.outputs, out, strict=True):
                known[number] = value
        return known, results

    def _operation(self, op: Op, operands: list[Any]) -> Sequence[Any]:
        """Returns the results of an operation on one device, all of which vary over all axes."""
        eqn = op.place.eqn
        if op.name in names.PROMOTIONS:
            return operands
        if op.name == "cond" or op.name in names.LOOPS:
            return run_anew(eqn, operands, self.function)
        if any(programs_within(eqn)):
            return run_equation(eqn, operands)
        made = eqn.primitive.bind(*operands, **eqn.params)
        return made if eqn.primitive.multiple_results else [made]
