"""`adjoint_memory`: what the gradient of a solve takes under each adjoint, and which to choose."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._checks import check_count, check_state
from .._jax._checkpointed_scan import bytes_of
from .._types import Args, IntScalarLike, RealScalarLike
from ..solvers import solve
from ..solvers._plan import default_solver, make_plan
from ..solvers._request import Interval, Request
from ..solvers.adjoints import AbstractAdjoint
from ..solvers.adjoints._checkpointed import DEFAULT_MEMORY
from ..solvers.integrate._batching import members_of, sequential
from ._adjoint_rows import KINDS, AdjointRow, Setting, rows_of
from ._memory import human, memory


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
        """Of the exact adjoints that the budget holds, the one with the fewest forward passes, then the least memory.

        Where the budget holds only adjoints with a caveat, the first of these.

        Raises:
            ValueError: If the budget holds none.
        """
        fitting = [row for row in self.rows if _fits(row, self.budget)]
        if not fitting:
            least = min((row for row in self.rows if row.bytes is not None), key=lambda row: row.bytes or 0)
            raise ValueError(
                f"`budget` is {human(self.budget)}, but the gradient takes at least {human(least.bytes or 0)}, with "
                f"`{least.name}`."
            )
        exact = [row for row in fitting if not row.caveat]
        return min(exact, key=lambda row: (row.solves, row.bytes)).adjoint if exact else fitting[0].adjoint

    def __str__(self) -> str:
        """One line for each adjoint: its memory, its forward passes, what it keeps, and its caveat."""
        chosen = self.recommended if any(_fits(row, self.budget) for row in self.rows) else None
        lines = [(" ", "adjoint", "memory", "solves", "keeps")]
        for row in self.rows:
            size, solves = ("-", "-") if row.bytes is None else (human(row.bytes), str(row.solves))
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
    adjoints: Sequence[type[AbstractAdjoint]] | type[AbstractAdjoint] = KINDS,
) -> AdjointMemory:
    """The memory that the gradient of a `solve` takes under each adjoint, without running it.

    The gradient is that of a number with respect to the initial state and the floating-point leaves of `model`
    and `args`. Gradients are compiled, one or two for each adjoint; the time that takes does not grow with the number
    of steps. An adjoint that refuses the solve has a row that says why. `Implicit` has none, since it is for steady
    states alone.

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
            take less time.

    Returns:
        An `AdjointMemory`: a table to print, whose `recommended` goes to `solve(adjoint=...)`.

    Raises:
        ValueError: If the solve would run through diffrax, or an argument is out of range.
        TypeError: If `members` or `budget` is not an integer, or `adjoints` does not hold classes of adjoints.

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
    budget = DEFAULT_MEMORY if budget is None else check_count(budget, "budget", "adjoint_memory")
    adjoints = (adjoints,) if isinstance(adjoints, type) else adjoints
    for kind in adjoints:
        if kind not in KINDS:
            known = ", ".join(f"`{x.__name__}`" for x in KINDS)
            raise TypeError(f"`adjoint_memory(adjoints=...)` takes classes among {known}, but got {kind!r}.")
    request = Request(t0, t1, dt, dt0, rtol, atol, solver, stepsize_controller, None, saveat, max_steps)
    solver = default_solver(model, request, y0, args)
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
            "`adjoint_memory` knows the loops of sciml, but this solve would run through diffrax; see `solver`, "
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
    return AdjointMemory(rows_of(setting, tuple(adjoints)), budget)


def _is_inexact(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))
