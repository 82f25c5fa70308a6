r"""What memory the gradient of a solve takes under each adjoint, before anything runs.

What a gradient keeps grows with the number of steps and is known by arithmetic: so many states. What it works
with, the stages of a step and their derivatives, does not grow, and the compiler says it: the gradient
of a solve of few steps is compiled, and what it keeps is subtracted. So

$$\text{bytes}(n) = \text{kept}(n) + \text{temporaries}(n_0) - \text{kept}(n_0).$$
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .. import _levels
from .._checkpointed_scan import bytes_of
from .._checks import check_count
from .._types import Args, IntScalarLike, RealScalarLike
from ..solvers import AbstractAdjoint, Checkpointed, Direct, solve
from ..solvers._plan import Plan, make_plan
from ..solvers.adjoints._checkpointed import DEFAULT_MEMORY
from ._memory import _human, memory

_FEW = 9  # steps: three blocks of three
_MORE = 16


class AdjointRow(NamedTuple):
    """One adjoint and what the gradient through it takes.

    Attributes:
        adjoint: To be passed to `solve`.
        bytes: The temporary memory of the gradient, on one device.
        solves: How often every step is run forwards, the solve itself included; the gradient's own sweep,
            which costs about twice a solve, comes on top.
        keeps: What the memory is for, in words.
    """

    adjoint: AbstractAdjoint
    bytes: int
    solves: int
    keeps: str

    @property
    def name(self) -> str:
        """The adjoint as it is written."""
        fields = {f: getattr(self.adjoint, f) for f in getattr(self.adjoint, "__dataclass_fields__", {})}
        given = ", ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        return f"{type(self.adjoint).__name__}({given})"


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
        """Of the adjoints that the budget holds, the one with the fewest forward passes, and then the least memory.

        Raises:
            ValueError: If the budget holds none.
        """
        fitting = [row for row in self.rows if row.bytes <= self.budget]
        if not fitting:
            least = min(self.rows, key=lambda row: row.bytes)
            raise ValueError(
                f"`budget` is {_human(self.budget)}, but the gradient takes at least {_human(least.bytes)}, with "
                f"`{least.name}`."
            )
        return min(fitting, key=lambda row: (row.solves, row.bytes)).adjoint

    def __str__(self) -> str:
        """One line for each adjoint: its memory, its forward passes, what it keeps."""
        lines = [("adjoint", "memory", "solves", "keeps")]
        lines += [(row.name, _human(row.bytes), str(row.solves), row.keeps) for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        chosen = [row.adjoint for row in self.rows if row.bytes <= self.budget] and self.recommended
        marks = [" ", *("*" if row.adjoint is chosen else " " for row in self.rows)]
        text = [
            f"{mark} {name:{widths[0]}}  {size:>{widths[1]}}  {solves:>{widths[2]}}  {keeps}".rstrip()
            for mark, (name, size, solves, keeps) in zip(marks, lines, strict=True)
        ]
        end = f"* recommended within {_human(self.budget)}" if chosen else f"none within {_human(self.budget)}"
        return "\n".join([*text, end])


class _Setting(NamedTuple):
    """A solve to be differentiated.

    Attributes:
        plan: What `solve` decided.
        state: Bytes of the state of all members.
        temporaries: Bytes that the compiler plans for the gradient through an adjoint, of the whole solve, or of
            the given number of steps.
    """

    plan: Plan
    state: int
    temporaries: Callable[[AbstractAdjoint, int | None], int]


def adjoint_memory(
    model: Callable[..., Any],
    y0: PyTree,
    *,
    t0: RealScalarLike,
    t1: RealScalarLike,
    args: Args = None,
    dt: RealScalarLike | None = None,
    rtol: PyTree | None = None,
    atol: PyTree | None = None,
    solver: Any = None,
    controller: Any = None,
    saveat: Any = None,
    max_steps: IntScalarLike | None = None,
    members: int = 1,
    budget: int | None = None,
) -> AdjointMemory:
    """The memory that the gradient of a `solve` takes under `Direct` and forms of `Checkpointed`, without running it.

    The gradient is that of a number with respect to the initial state and the floating-point leaves of `model`
    and `args`. Gradients of a few steps are compiled; the time that takes does not grow with the number of steps.

    Args:
        model: As for `solve`.
        y0: The initial state of one member; leaves may be `jax.ShapeDtypeStruct`.
        t0: The start time.
        t1: The end time.
        args: As for `solve`.
        dt: As for `solve`; with it and no tolerance the number of steps is known.
        rtol: As for `solve`.
        atol: As for `solve`.
        solver: As for `solve`.
        controller: As for `solve`.
        saveat: As for `solve`.
        max_steps: As for `solve`.
        members: The number of members of a `jax.vmap` over initial states.
        budget: The bytes that the gradient may take; by default 256 MiB.

    Returns:
        An `AdjointMemory`: a table to print, whose `recommended` goes to `solve(adjoint=...)`.

    Raises:
        ValueError: If the solve would run through diffrax, or an argument is out of range.
        TypeError: If `members` or `budget` is not an integer.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def heat(t, u, args):
            return jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1) - u**3

        u0 = jax.ShapeDtypeStruct((1_000_000,), jnp.float32)
        table = sciml.inspect.adjoint_memory(heat, u0, t0=0.0, t1=100.0, dt=0.1, budget=500 * 4_000_000)
        print(table)
        assert table.recommended.levels == 2
        ```
    """
    check_count(members, "members", "adjoint_memory")
    budget = DEFAULT_MEMORY if budget is None else check_count(budget, "budget", "adjoint_memory")
    options = dict(rtol=rtol, atol=atol, solver=solver, controller=controller, saveat=saveat, max_steps=max_steps)
    plans = []

    def read(y0):
        plans.append(make_plan(y0, t0=t0, t1=t1, dt=dt, **options)[0])

    jax.eval_shape(read, y0)
    plan = plans[0]
    if plan.stepper is None:
        raise ValueError(
            "`adjoint_memory` knows the loops of sciml, but this solve would run through diffrax; see `solver`, "
            "`controller` and `saveat` of `solve`."
        )
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype) if members > 1 else x, y0)

    def temporaries(adjoint: AbstractAdjoint, steps: int | None) -> int:
        end = t1
        if steps is not None:
            assert dt is not None
            end = float(t0) + float(dt) * (steps + 0.5 * plan.tail)

        def loss(inputs):
            model, y0, args = inputs

            def member(y0):
                fixed = dict(t0=t0, t1=end, dt=dt, args=args, adjoint=adjoint, throw=False)
                return solve(model, y0, **fixed, **options).ys

            ys = jax.vmap(member)(y0) if members > 1 else member(y0)
            return sum(jnp.sum(jnp.real(x)) for x in jax.tree.leaves(ys))

        return memory(eqx.filter_grad(loss), (model, batch, args)).temporaries

    setting = _Setting(plan, members * bytes_of(y0), temporaries)
    rows = [row for lines in (_LINES if plan.steps is not None else _LINES_OF_LOOPS) for row in lines(setting)]
    return AdjointMemory(tuple(rows), budget)


def _kept(steps: int, counts: tuple[int, ...]) -> int:
    """Returns how many states are kept at once; where all are, a segment's stand aside until it ends."""
    return sum(counts) if len(counts) > 1 else steps + _levels.split(steps, 2)[-1]


def _levels_of_steps(setting: _Setting) -> Iterator[AdjointRow]:
    steps = setting.plan.steps
    assert steps is not None
    found = [_levels.split(steps, levels) for levels in range(1, _levels.MOST + 1)]
    for shortest, some in ((1, found[:1]), (2, found[1:])):
        few = _levels.split(_FEW, shortest)
        working = setting.temporaries(Checkpointed(levels=shortest), _FEW) - _kept(_FEW, few) * setting.state
        for levels, counts in enumerate(some, shortest):
            kept = _kept(steps, counts)
            if levels > 2 and kept > 0.9 * _kept(steps, found[levels - 2]):
                return  # a level that saves no tenth is not worth a solve
            states = f"{kept} states of {steps + setting.plan.tail}"
            yield AdjointRow(Checkpointed(levels=levels), kept * setting.state + working, levels, states)


def _direct_through_steps(setting: _Setting) -> Iterator[AdjointRow]:
    """What a step keeps is the compiler's, and grows with the states that are kept."""
    steps = setting.plan.steps
    assert steps is not None
    few, more = (setting.temporaries(Direct(), n) for n in (_FEW, _MORE))
    kept = [_kept(n, (n,)) for n in (_FEW, _MORE, steps)]
    each = (more - few) / (kept[1] - kept[0])
    yield AdjointRow(Direct(), round(few + each * (kept[2] - kept[0])), 1, "what every step computes")


def _slots_of_loops(setting: _Setting) -> Iterator[AdjointRow]:
    """The record's size does not depend on the number of steps, so the compiler's plan is read as it is."""
    least = Checkpointed(segments=16)
    yield AdjointRow(Checkpointed(), setting.temporaries(Checkpointed(), None), 2, "up to 16 MiB of steps")
    yield AdjointRow(least, setting.temporaries(least, None), 2, "16 steps")


_LINES: tuple[Callable[[_Setting], Iterator[AdjointRow]], ...] = (_direct_through_steps, _levels_of_steps)
"""What adjoints there are for a known number of steps; adding an adjoint is adding a function."""

_LINES_OF_LOOPS: tuple[Callable[[_Setting], Iterator[AdjointRow]], ...] = (_slots_of_loops,)
"""What adjoints there are where a loop finds the end."""
