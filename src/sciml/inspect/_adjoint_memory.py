r"""`adjoint_memory`: the memory of the gradient of a solve under each adjoint, and a recommendation.

The memory that each adjoint keeps between the solve and its gradient.

The memory of the gradient of a known number of steps grows with that number and is known by arithmetic: a number of
states. Its working memory, the stages of a step and their derivatives, does not grow, and comes from the compiler: the
gradient of a solve of few steps is compiled, and the stored memory is subtracted. So

$$\text{bytes}(n) = \text{kept}(n) + \text{temporaries}(n_0) - \text{kept}(n_0).$$

The memory of other gradients does not depend on the number of steps: a reversible method and sensitivities keep no
states, and records and tables have a fixed size. With `Direct` only the compiler knows the memory of a step. In these
cases the gradient itself is compiled, and the compiler's plan read as it is.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._checks import check_count, check_state
from .._choices import choices
from .._jax import _checkpoint_levels
from .._jax._checkpointed_scan import bytes_of
from .._types import Args, IntScalarLike, RealScalarLike
from ..solvers._plan import Plan, default_solver, make_plan
from ..solvers._request import Interval, Request
from ..solvers._solve import solve
from ..solvers.adjoints._abstract import AbstractAdjoint
from ..solvers.adjoints._checkpointed import Checkpointed
from ..solvers.adjoints._direct import Direct
from ..solvers.adjoints._forward import Forward
from ..solvers.adjoints.continuous._adjoints import Backsolve, Gauss, Interpolating
from ..solvers.adjoints.reversible._adjoint import Reversible
from ..solvers.adjoints.reversible._fixed_steps import needed_coupling
from ..solvers.integrate._batching import members_of, sequential
from ..solvers.integrate._fixed_steps import PAIR
from ._compiled import human, memory

_FEW = 9  # steps: three blocks of three


class AdjointRow(NamedTuple):
    """One adjoint and the memory of the gradient through it.

    Attributes:
        adjoint: To be passed to `solve`.
        bytes: The temporary memory of the gradient, on one device; None if the adjoint cannot run this solve.
        solves: About how often every step is run forwards, the solve itself included; the gradient's own sweep,
            which costs about twice a solve, comes on top. `Forward` has a tangent for each number
            instead of a sweep. None if it is not known.
        keeps: The use of the memory, in words; or the reason why the adjoint cannot run this solve.
        caveat: A limit of the gradient's accuracy besides rounding; empty for an exact one.
    """

    adjoint: AbstractAdjoint
    bytes: int | None
    solves: int | None
    keeps: str
    caveat: str = ""

    @property
    def name(self) -> str:
        """The adjoint as it is written, without its default arguments."""
        fields = getattr(self.adjoint, "__dataclass_fields__", {})
        values = {name: (getattr(self.adjoint, name), field.default) for name, field in fields.items()}
        given = ", ".join(f"{name}={value}" for name, (value, default) in values.items() if value != default)
        return f"{type(self.adjoint).__name__}({given})"


class Setting(NamedTuple):
    """A solve to be differentiated.

    Attributes:
        plan: The plan of `solve`.
        state: Bytes of the state of all members.
        eps: The precision of the state.
        columns: How many real numbers one member's gradient is by.
        temporaries: Bytes that the compiler plans for the gradient through an adjoint, of the whole solve, or of
            the given number of steps.
        at_once: The share of the members that run at once: all, or one where they run one after another.
    """

    plan: Plan
    state: int
    eps: float
    columns: int
    temporaries: Callable[[AbstractAdjoint, int | None], int]
    at_once: float

    def kept(self, steps: int, counts: tuple[int, ...]) -> int:
        """Returns the bytes of states kept at once: the first level of all members, the others of those that run."""
        first, inner = _kept(steps, counts)
        return round((first + self.at_once * inner) * self.state)


def rows_of(setting: Setting, adjoints: tuple[type[AbstractAdjoint] | AbstractAdjoint, ...]) -> tuple[AdjointRow, ...]:
    """Returns the rows of each kind of adjoint, and one for an adjoint itself."""
    rules = _THROUGH_STEPS if setting.plan.steps is not None else _THROUGH_LOOPS
    rows = [rules[x](setting) if isinstance(x, type) else (_compiled(setting, x, None, *_OWN),) for x in adjoints]
    return tuple(row for some in rows for row in some)


def _kept(steps: int, counts: tuple[int, ...]) -> tuple[int, int]:
    """Returns how many states are kept at once, in the first level and in the others.

    Steps that the counts leave over start from a state of their own, one for each level they run in.
    """
    left_over = len(_checkpoint_levels.pieces(steps, counts)) - 1
    return counts[0] + left_over, sum(counts[1:])


def _levels_of_steps(setting: Setting) -> Iterator[AdjointRow]:
    steps = setting.plan.steps
    assert steps is not None
    most = choices().checkpoints.levels_at_most
    found = [_checkpoint_levels.split(steps, levels, multiple=PAIR) for levels in range(1, most + 1)]
    for shortest, some in ((1, found[:1]), (2, found[1:])):
        few = _checkpoint_levels.split(_FEW, shortest, multiple=PAIR)
        working = setting.temporaries(Checkpointed(levels=shortest), _FEW) - setting.kept(_FEW, few)
        for levels, counts in enumerate(some, shortest):
            kept = sum(_kept(steps, counts))
            if levels > 2 and kept > 0.9 * sum(_kept(steps, found[levels - 2])):
                return  # a level that saves no tenth is not worth a solve
            states = f"{kept} states of {steps + setting.plan.tail}"
            yield AdjointRow(Checkpointed(levels=levels), setting.kept(steps, counts) + working, levels, states)


def _direct(setting: Setting) -> Iterator[AdjointRow]:
    """The compiler decides which values of a step are kept, so the gradient through all steps is compiled."""
    yield _compiled(setting, Direct(), 1, "the intermediate values of every step")


def _last_steps(setting: Setting) -> Iterator[AdjointRow]:
    """The record's size does not depend on the number of steps, so the compiler's plan is read as it is."""
    least = Checkpointed(segments=16)
    yield AdjointRow(Checkpointed(), setting.temporaries(Checkpointed(), None), 1, "all steps that fit in the record")
    yield AdjointRow(least, setting.temporaries(least, None), 3, "16 steps")


def _forward(setting: Setting) -> Iterator[AdjointRow]:
    columns = setting.columns
    yield _compiled(setting, Forward(), 1 + columns, f"a tangent for each of {columns} numbers")


def _reversible(setting: Setting) -> Iterator[AdjointRow]:
    """A step is two of the method's, and so is its share of the sweep: six solves in all, two for the sweep."""
    adjoint, keeps = Reversible(), "no states"
    if setting.plan.count is None:
        keeps = "the lengths of steps"
    else:
        needed = needed_coupling(setting.plan.count, setting.eps)
        if needed > adjoint.coupling:
            adjoint = Reversible(1 - float(f"{(1 - needed) / 2:.1g}"))
    yield _compiled(setting, adjoint, 4, keeps, "as exact as the steps are reversible")


def _gauss(setting: Setting) -> Iterator[AdjointRow]:
    """The solve runs again to fill the table."""
    yield _compiled(setting, Gauss(), 2, "a table of steps", _TOLERANCES)


def _interpolating(setting: Setting) -> Iterator[AdjointRow]:
    yield _compiled(setting, Interpolating(), 2, "a table of steps", _TOLERANCES)


def _backsolve(setting: Setting) -> Iterator[AdjointRow]:
    """The solve also runs backwards."""
    yield _compiled(setting, Backsolve(), 2, "no states", _TOLERANCES)


_TOLERANCES = "accurate to the tolerances"

_OWN = ("as compiled", "its accuracy is not known")
"""Of an adjoint that is given as an object, only the memory is known."""


def _compiled(
    setting: Setting, adjoint: AbstractAdjoint, solves: int | None, keeps: str, caveat: str = ""
) -> AdjointRow:
    """Returns a row whose memory is the compiler's plan of the whole gradient, or why there is none."""
    try:
        return AdjointRow(adjoint, setting.temporaries(adjoint, None), solves, keeps, caveat)
    except (TypeError, ValueError) as error:  # the adjoint's own refusal, when it is traced
        return AdjointRow(adjoint, None, solves, _first_sentence(str(error)))


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:]) ", re.sub(r"\s+", " ", text.strip()))[0].rstrip(".:")


_Rule = Callable[[Setting], Iterator[AdjointRow]]

_THROUGH_BOTH: dict[type[AbstractAdjoint], _Rule] = {
    Forward: _forward,
    Reversible: _reversible,
    Gauss: _gauss,
    Interpolating: _interpolating,
    Backsolve: _backsolve,
}
"""Adjoints whose memory does not depend on the number of steps, so that it need not be known; the more exact first."""

_THROUGH_STEPS: dict[type[AbstractAdjoint], _Rule] = {
    Direct: _direct,
    Checkpointed: _levels_of_steps,
    **_THROUGH_BOTH,
}
"""The rows of each adjoint for a known number of steps; adding an adjoint is adding a function."""

_THROUGH_LOOPS: dict[type[AbstractAdjoint], _Rule] = {
    Direct: _direct,
    Checkpointed: _last_steps,
    **_THROUGH_BOTH,
}
"""The same where a loop finds the end."""

KINDS = tuple(_THROUGH_STEPS)
"""All adjoints that have rows."""


class AdjointMemory(NamedTuple):
    """The memory of a gradient under each adjoint; prints as a table.

    Attributes:
        rows: An `AdjointRow` for each adjoint.
        budget: The bytes that the gradient may take.
    """

    rows: tuple[AdjointRow, ...]
    budget: int

    @property
    def recommended(self) -> AbstractAdjoint:
        """The exact adjoint within the budget that has the fewest forward passes, then the least memory.

        If the budget only fits adjoints with a caveat, the first of these.

        Raises:
            ValueError: If the budget holds none.
        """
        fitting = [row for row in self.rows if _fits(row, self.budget)]
        if not fitting:
            least = min((row for row in self.rows if row.bytes is not None), key=lambda row: row.bytes or 0)
            raise ValueError(
                f"`budget` is {human(self.budget)}, but the gradient requires at least {human(least.bytes or 0)}, with "
                f"`{least.name}`."
            )
        exact = [row for row in fitting if not row.caveat]
        return min(exact, key=lambda row: (row.solves, row.bytes)).adjoint if exact else fitting[0].adjoint

    def __str__(self) -> str:
        """One line for each adjoint: its memory, its forward passes, the stored values, and its caveat."""
        chosen = self.recommended if any(_fits(row, self.budget) for row in self.rows) else None
        lines = [(" ", "adjoint", "memory", "solves", "keeps")]
        for row in self.rows:
            size = "-" if row.bytes is None else human(row.bytes)
            solves = "-" if row.bytes is None or row.solves is None else str(row.solves)
            keeps = f"{row.keeps}; {row.caveat}" if row.caveat else row.keeps
            lines.append(("*" if row.adjoint is chosen else " ", row.name, size, solves, keeps))
        name, size, solves = (max(len(line[i]) for line in lines) for i in (1, 2, 3))
        text = [f"{x[0]} {x[1]:{name}}  {x[2]:>{size}}  {x[3]:>{solves}}  {x[4]}".rstrip() for x in lines]
        end = f"none within {human(self.budget)}" if chosen is None else f"* recommended within {human(self.budget)}"
        return "\n".join([*text, end])


def _fits(row: AdjointRow, budget: int) -> bool:
    return row.bytes is not None and row.bytes <= budget


def adjoint_memory(
    model: Callable[..., Any],
    y0: PyTree,
    *,
    t0: RealScalarLike,
    t1: RealScalarLike,
    args: Args = None,
    dt: RealScalarLike | None = None,
    dt0: RealScalarLike | None = None,
    rtol: PyTree | None = None,
    atol: PyTree | None = None,
    solver: Any = None,
    stepsize_controller: Any = None,
    saveat: Any = None,
    max_steps: IntScalarLike | None = None,
    members: int = 1,
    budget: int | None = None,
    adjoints: Sequence[type[AbstractAdjoint] | AbstractAdjoint] | type[AbstractAdjoint] | AbstractAdjoint = KINDS,
) -> AdjointMemory:
    """The memory that the gradient of a `solve` needs with each adjoint, without running it.

    The gradient is the gradient of a number with respect to the initial state and the floating-point leaves of `model`
    and `args`. Gradients are compiled, one or two for each adjoint; the time that takes does not grow with the number
    of steps. An adjoint that does not support the solve has a row with the reason. `Implicit` has none, because it only
    supports steady states.

    Args:
        model: As for `solve`.
        y0: The initial state of one member; leaves may be `jax.ShapeDtypeStruct`.
        t0: The start time.
        t1: The end time.
        args: As for `solve`.
        dt: As for `solve`; with it the number of steps is known.
        dt0: As for `solve`.
        rtol: As for `solve`.
        atol: As for `solve`.
        solver: As for `solve`.
        stepsize_controller: As for `solve`.
        saveat: As for `solve`.
        max_steps: As for `solve`.
        members: The number of members of a `jax.vmap` over initial states.
        budget: The bytes that the gradient may take; by default 256 MiB.
        adjoints: Classes to look at, such as `(sciml.adjoints.Checkpointed, sciml.adjoints.Reversible)`, or one; fewer
            take less time. Or adjoints themselves, such as a custom one; only their memory is known.

    Returns:
        An `AdjointMemory`: a table to print, whose `recommended` goes to `solve(adjoint=...)`.

    Raises:
        ValueError: If the solve would run through diffrax, or an argument is out of range.
        TypeError: If `members` or `budget` is not an integer, or `adjoints` does not hold adjoints.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def heat(t, u, args):
            return jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1) - u**3

        u0 = jax.ShapeDtypeStruct((1_000_000,), jnp.float32)
        adjoints = (sciml.adjoints.Checkpointed, sciml.adjoints.Reversible)
        table = sciml.inspect.adjoint_memory(
            heat, u0, t0=0.0, t1=100.0, dt=0.1, budget=500 * 4_000_000, adjoints=adjoints
        )
        print(table)
        assert table.recommended.levels == 2
        ```
    """
    check_count(members, "members", "adjoint_memory")
    budget = choices().checkpoints.memory if budget is None else check_count(budget, "budget", "adjoint_memory")
    adjoints = (adjoints,) if isinstance(adjoints, type | AbstractAdjoint) else tuple(adjoints)
    for kind in adjoints:
        if not isinstance(kind, AbstractAdjoint) and kind not in KINDS:
            known = ", ".join(f"`{x.__name__}`" for x in KINDS)
            raise TypeError(
                f"`adjoint_memory(adjoints=...)` must be classes from {known}, or adjoints, but got {kind!r}. Pass a "
                "custom adjoint as an object, such as `MyAdjoint()`."
            )
    request = Request(
        t0=t0, t1=t1, args=args, dt=dt, dt0=dt0, rtol=rtol, atol=atol, solver=solver,
        stepsize_controller=stepsize_controller, saveat=saveat, max_steps=max_steps,
    )  # fmt: skip
    solver = default_solver(model, request, y0)
    request = request._replace(solver=solver)
    options: dict[str, Any] = dict(dt0=dt0, rtol=rtol, atol=atol, solver=solver, saveat=saveat, max_steps=max_steps)
    options |= dict(stepsize_controller=stepsize_controller)
    found = []

    def read(y0):
        precision = max(float(jnp.finfo(x.dtype).eps) for x in jax.tree.leaves(check_state(y0)))
        found.append((make_plan(y0, request, Interval.of(request, y0))[0], precision))

    jax.eval_shape(read, y0)  # the leaves of `y0` may be shapes alone
    plan, eps = found[0]
    if plan.stepper is None:
        raise ValueError(
            "`adjoint_memory` only supports sciml's own loops, but this solve would run through diffrax; see `solver`, "
            "`stepsize_controller` and `saveat` of `solve`."
        )
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype) if members > 1 else x, y0)

    def temporaries(adjoint: AbstractAdjoint, steps: int | None) -> int:
        end = t1
        if steps is not None:
            assert dt is not None
            # half a step more where the last step of the solve is shorter, so that this program has one like it
            end = float(t0) + float(dt) * (steps + 0.5 * plan.tail)

        def loss(inputs):
            model, y0, args = inputs

            def member(y0):
                fixed = dict(t0=t0, t1=end, dt=dt, args=args, adjoint=adjoint, throw=False)
                return solve(model, y0, **fixed, **options).ys

            ys = jax.vmap(member)(y0) if members > 1 else member(y0)
            return sum(jnp.sum(jnp.real(x)) for x in jax.tree.leaves(ys))

        return memory(eqx.filter_grad(loss), (model, batch, args)).temporaries

    numbers = [x for x in jax.tree.leaves((model, y0, args)) if hasattr(x, "dtype")]
    columns = sum(x.size * (1 + jnp.issubdtype(x.dtype, jnp.complexfloating)) for x in numbers if _is_inexact(x))
    at_once = 1 / members if members_of(plan.stepper, y0) is sequential else 1.0
    setting = Setting(plan, members * bytes_of(y0), eps, columns, temporaries, at_once)
    return AdjointMemory(rows_of(setting, adjoints), budget)


def _is_inexact(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))
