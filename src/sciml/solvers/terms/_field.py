"""A vector field as a program with its parameters made explicit.

Custom derivative and batching rules must not close over traced values, but a user's function may: it
may be a lambda around a parameter that is being differentiated. So the function is traced once, and
everything traced that it needs becomes an operand.
"""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._checks import concrete
from ..._choices import choices
from ..._jax._interpreters import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from ..._jax._platform import default_platform
from ..._jax._promoted import as_promoted_function
from ..._jax._shards import traced_on_no_mesh
from ..._jax._shifted_updates import read_before_written
from ..._jax._vma import promote, to_varying, vma_of
from ..._jax.programs import _names as names, equations, reads
from ..._structure_words import first_difference, structure_words
from ..._types import Args, RealScalarLike, Y
from ._barrier import stage_barrier
from ._explain import explained

BoundField: TypeAlias = Callable[[RealScalarLike, Y], Y]
"""A vector field with its parameters bound, `f(t, y)`."""


def reads_neighbours(jaxpr: Jaxpr) -> bool:
    """Returns whether a program moves elements of large arrays to other places, or communicates with other devices."""
    large = choices().fields.barrier_from
    return any(
        eqn.primitive.name in names.MESSAGES
        or (eqn.primitive.name in names.MOVES and any(getattr(v.aval, "size", 0) >= large for v in eqn.outvars))
        for eqn in equations(jaxpr)
    )


def arrays_of(args: Args) -> Args:
    """Returns `args` with floating-point and NumPy leaves as JAX arrays, so that new values need no new trace."""

    def convert(x: Any) -> Any:
        return jnp.asarray(x) if isinstance(x, float | complex | np.ndarray | np.generic) else x

    return jax.tree.map(convert, args)


class AbstractField(abc.ABC):
    """A vector field that closes over no traced value, `field(t, y, operands)`.

    Attributes:
        reads_time: Whether it depends on the time.
        has_rules: Whether it calls functions with custom derivative rules, as by `jax.custom_jvp`.
        on_arrays: Whether most of its operations are on arrays, not on single numbers.
    """

    reads_time: bool = True
    has_rules: bool = False
    on_arrays: bool = False

    def of_one(self) -> "AbstractField":
        """Returns the field for a single member."""
        return self

    @abc.abstractmethod
    def __call__(self, t: RealScalarLike, y: Y, operands: list) -> Y:
        """Returns the vector field."""

    @abc.abstractmethod
    def bind(self, operands: list, whole: bool = True) -> Any:
        """Returns the field with its operands, as a function of time and state.

        Args:
            operands: Its operands, arrays or PyTrees of them.
            whole: Whether for a step of full length.
        """


class BoundFunction:
    """A vector field `(t, y, operands)` with its operands.

    Attributes:
        function: The field.
        operands: Its operands.
        long: Whether stages are best evaluated in a loop, since each evaluation takes long to compile.
    """

    def __init__(self, function: Callable[[RealScalarLike, Y, list], Y], operands: list, long: bool):
        self.function, self.operands, self.long = function, operands, long

    def __call__(self, t: RealScalarLike, y: Y) -> Y:
        """Returns the vector field."""
        return self.function(t, y, self.operands)


class ClosedField(AbstractField):
    """A vector field from a function `(t, y, operands)`."""

    def __init__(
        self,
        function: Callable[[RealScalarLike, Y, list[Array]], Y],
        reads_time: bool = True,
        has_rules: bool = False,
        long: bool = False,
        on_arrays: bool = False,
    ):
        self.function, self.reads_time, self.has_rules, self.long = function, reads_time, has_rules, long
        self.on_arrays = on_arrays

    def __call__(self, t: RealScalarLike, y: Y, operands: list) -> Y:
        """Returns the vector field."""
        return self.function(t, y, operands)

    def bind(self, operands: list, whole: bool = True) -> BoundField:
        """Returns the field as a function of time and state, for any step."""
        del whole
        return BoundFunction(self.function, operands, self.long)


def close_field(model: Callable, t: Array, y: Y, args: Args, stages: int = 1) -> tuple[AbstractField, list[Array]]:
    """Traces a model once and returns it as a field with its operands.

    Args:
        model: `model(t, y, args) -> dy/dt`.
        t: A time, for its dtype.
        y: A state, for its structure, shapes and dtypes.
        args: The third argument of the model.
        stages: How often a step evaluates the model; several evaluations may be separated by barriers.

    Raises:
        ValueError: If the model returns another structure, shape or dtype than the state's.
    """
    parameters, rebuild = parameters_of(model, args)

    def flat(t, y, parameters):
        model, args = rebuild(parameters)
        return model(t, y, args)

    program, out, consts = close(flat, (t, y), parameters)
    check_like(y, out)
    apart = stages > 1 and program.reads_neighbours
    with_barriers = stage_barrier if apart else lambda tree, t: tree
    long = program.takes_long(apart)
    # leaves that the model does not read are not operands: their zero cotangent would be carried through every loop
    kinds, used = program.last_inputs(len(parameters))
    count = sum(used)

    def field(t, y, operands):
        rest = iter(operands[:count])
        every = [next(rest) if u else jnp.zeros(kind.shape, kind.dtype) for kind, u in zip(kinds, used)]
        return with_barriers(program(every, operands[count:], t, with_barriers(y, t)), t)

    operands = [x for x, u in zip(parameters, used) if u] + consts
    return ClosedField(field, program.reads_first_input, program.has_rules, long, program.is_on_arrays), operands


def parameters_of(model: Callable, args: Args) -> tuple[list[Array], Callable[[list[Array]], tuple[Callable, Args]]]:
    """Returns the arrays of a model and its args, and a function that rebuilds both from these."""
    parameters, static = eqx.partition((model, args), eqx.is_array)
    parameters, structure = jax.tree.flatten(parameters)
    return parameters, lambda parameters: eqx.combine(jax.tree.unflatten(structure, parameters), static)


class Program:
    """A traced function whose every traced value is an argument: `program(parameters, consts, *inputs)`."""

    def __init__(self, closed: ClosedJaxpr, hoisted: list[bool], promoted: bool, structure: Any):
        self.jaxpr = closed.jaxpr
        self.kept = [None if h else c for c, h in zip(closed.consts, hoisted)]
        self.hoisted = hoisted
        self.promoted = promoted
        self.structure = structure
        self.captures = not all(map(concrete, closed.consts))  # whether it closes over a traced value

    @property
    def reads_neighbours(self) -> bool:
        """Whether it moves elements of large arrays to other places."""
        return reads_neighbours(self.jaxpr)

    @property
    def size(self) -> int:
        """How many operations it has and the programs within it have."""
        return sum(1 for _ in equations(self.jaxpr))

    def takes_long(self, apart: bool) -> bool:
        """Returns whether stages that evaluate it are best in a loop.

        Args:
            apart: Whether barriers separate the stages. Nothing is fused across them, so that a loop loses nothing; nor
                does it lose much if most operations are on arrays.
        """
        many = self.size >= choices().fields.stages_in_loop_from and (apart or self.is_on_arrays)
        return many and default_platform() == "cpu" and not self.has_kernels

    @property
    def is_on_arrays(self) -> bool:
        """Whether most of its operations are on arrays."""
        sizes = [getattr(v.aval, "size", 0) for eqn in equations(self.jaxpr) for v in eqn.outvars]
        return 2 * sum(size > 1 for size in sizes) > len(sizes)

    @property
    def has_kernels(self) -> bool:
        """Whether it runs kernels."""
        return any(eqn.primitive.name == "pallas_call" for eqn in equations(self.jaxpr))

    @property
    def has_rules(self) -> bool:
        """Whether it calls functions with custom derivative rules."""
        return any(eqn.primitive.name in names.CUSTOM_RULES for eqn in equations(self.jaxpr))

    @property
    def reads_first_input(self) -> bool:
        """Whether its results depend on its first input, the time for a vector field."""
        return reads(self.jaxpr, self.jaxpr.invars[0])

    def reads_inputs(self, first: int, count: int) -> list[bool]:
        """Returns the inputs, from a given one on, that the program reads."""
        return [reads(self.jaxpr, v) for v in self.jaxpr.invars[first : first + count]]

    def last_inputs(self, count: int) -> tuple[list[Any], list[bool]]:
        """Returns the types of the last inputs, and the ones among them that the program reads."""
        inputs = self.jaxpr.invars[len(self.jaxpr.invars) - count :]
        return [v.aval for v in inputs], [reads(self.jaxpr, v) or not _plain(v) for v in inputs]

    def __call__(self, parameters: list[Array], consts: list[Array], *inputs: PyTree) -> PyTree:
        """Runs the program."""
        moved = iter(consts)
        every = [next(moved) if h else c for c, h in zip(self.kept, self.hoisted)]
        leaves = jax.tree.leaves((*inputs, parameters))
        leaves = [jnp.asarray(x, v.aval.dtype) if _plain(v) else x for x, v in zip(leaves, self.jaxpr.invars)]
        program = ClosedJaxpr(self.jaxpr, every)
        run = as_promoted_function(program) if self.promoted else jaxpr_as_fun(program)
        # a result that depends on nothing is written into the program, as a number
        out = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in run(*leaves)]
        return jax.tree.unflatten(self.structure, out)


def close(flat: Callable, inputs: tuple, parameters: list[Array]) -> tuple[Program, PyTree, list[Array]]:
    """Traces `flat(*inputs, parameters)` once, whose last input is a state or like one.

    Returns:
        The program, the shapes of its results, and the closed-over values that become operands.
    """
    arguments = promote((*inputs, parameters))

    def traced(*arguments):
        out = flat(*arguments)
        return literals_as_arrays(out, arguments[len(inputs) - 1]) if inputs else out

    with explained():
        closed, out = traced_on_no_mesh(traced, *arguments)
    if not vma_of(closed.consts) <= vma_of(arguments):  # the model closes over what differs between devices
        arguments = to_varying(arguments, vma_of(closed.consts))
        closed = jax.make_jaxpr(traced)(*arguments)
    closed = read_before_written(closed)
    # traced values, over which rules must not close, and large arrays, which would be constants of the program; but not
    # whole numbers, which may be places of elements and say what depends on what
    table = choices().fields
    most = [table.whole_constants_at_most if _whole(c) else table.constants_at_most for c in closed.consts]
    hoisted = [not concrete(c) or np.size(c) > size for c, size in zip(closed.consts, most)]
    # what the model closes over and the same on all devices is promoted with the other operands
    promoted = any(vma_of(c) != vma_of((arguments, closed.consts)) for c in closed.consts)
    consts = [jnp.asarray(c) for c, h in zip(closed.consts, hoisted) if h]
    return Program(closed, hoisted, promoted, jax.tree.structure(out)), out, consts


def literals_as_arrays(out: PyTree, like: PyTree) -> PyTree:
    """Returns the results of a model, with plain numbers, such as `-9.81`, in the dtypes of the state's leaves."""
    leaves, structure = jax.tree.flatten(out)
    if not any(map(_is_literal, leaves)) or structure != jax.tree.structure(like):
        return out

    def convert(x: Any, of: Any) -> Any:
        fits = _is_literal(x) and np.can_cast(np.min_scalar_type(type(x)(1)), of.dtype, "same_kind")
        return jnp.asarray(x, of.dtype) if fits else x

    return jax.tree.map(convert, out, like)


def _is_literal(x: Any) -> bool:
    return isinstance(x, int | float | complex) and not isinstance(x, bool)


def _whole(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.integer)


def _plain(v: Any) -> bool:
    return not jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.extended)  # as that of random keys


def check_like(y: Y, out: PyTree) -> None:
    """Checks that a vector field returned the structure, shapes and dtypes of its state."""
    expected, got = jax.tree.structure(y), jax.tree.structure(out)
    if expected != got:
        hint = ""
        if jax.tree_util.treedef_is_leaf(expected) and isinstance(out, list | tuple):
            hint = " Combine the components with `jnp.stack([...])`, or pass `y0` as a tuple or list of the same form."
        elif type(y) is not type(out) and {type(y), type(out)} <= {tuple, list}:
            hint = f" Return a {type(y).__name__}."
        raise ValueError(
            f"The vector field must return the structure of `y0`, {structure_words(y)}, but it returned "
            f"{structure_words(out)}.{first_difference(y, out)}{hint}"
        )
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(y), jax.tree.leaves(out)):
        where = jax.tree_util.keystr(path) or "the state"
        if jnp.shape(a) != b.shape:
            hint = " For a batch of states use `jax.vmap` of the solve." if jnp.ndim(a) > 1 else ""
            if not b.shape:
                hint = " The first argument is the time, as in `model(t, y, args)`: check the order of the arguments."
            raise ValueError(
                f"The vector field must return the shapes of `y0`: {where} has shape {jnp.shape(a)}, but its rate has "
                f"shape {b.shape}.{hint}"
            )
        if a.dtype != b.dtype:
            raise ValueError(
                f"The vector field must return the dtypes of `y0`: {where} has {a.dtype}, but its rate has {b.dtype}. "
                f"Convert `y0` or the model's parameters so that both have the same dtype."
            )
