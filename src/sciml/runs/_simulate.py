"""`simulate`: a long run as a host loop over one compiled segment."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import check_count, check_key, check_state
from .._interfaces._dae import AbstractDAE
from .._interfaces._delayed import AbstractDelayed
from .._interfaces._reactions import AbstractReactions
from .._interfaces._stochastic import AbstractStochastic
from .._option_names import knows_other_names
from .._progress import ProgressOption, check_progress
from .._types import Args, BoolScalarLike, IntScalarLike, RealScalarLike, Y
from ..kernels._backends import XLA
from ..kernels._use import USED
from ..solvers._plan import Plan, Times, default_solver, plan_events, with_courant_number
from ..solvers._request import Interval, Request
from ..solvers._stable_step import limited_stepper, settle_step
from ..solvers._with_delays import check_first_delays, with_delays
from ..solvers._with_noise import check_noisy, is_noisy, noisy_model, with_noisy_solver
from ..solvers.adjoints._checkpointed import Checkpointed
from ..solvers.events._event import GivenEvents, ModelWithEvents, read_events
from ..solvers.integrate._stencil_kernel import backend_of, decline
from ..solvers.noise._brownian import BrownianPath
from ..solvers.noise._closed_noise import ModelWithNoise
from ..solvers.noise._random_bits import words_of
from ..solvers.outputs._solve_outputs import has_equations_of_its_own
from ..solvers.terms._explain import check_callable
from ..solvers.terms._field import arrays_of
from ..solvers.terms._suits import blaming_state, check_suits
from ..spatial import Grid
from ..stores._abstract import AbstractStore
from . import _prepare
from ._delays import with_past
from ._execute import execute
from ._run import Run
from .segments._in_axes import read_axes, shared_limit
from .segments._stops import read_stops


def space_of(model: Any) -> dict[str, list[float]] | None:
    """Returns the coordinates of the unknowns by axis; None where the model has no grid, or several.

    The model itself, or parts of it such as `Boundaries` and `Spectral`, define it by a `grid` and a `location` on it.
    """

    def says(x: Any) -> bool:
        return isinstance(getattr(x, "grid", None), Grid) and hasattr(x, "location")

    found = [x for x in jax.tree.leaves(model, is_leaf=says) if says(x)]
    places = {(x.grid, tuple(x.location)) for x in found}
    if len(places) != 1:
        return None
    ((grid, location),) = places
    return {
        name: np.asarray(x, np.float64).reshape(-1).tolist()
        for name, x in zip(grid.names, grid.coordinates(location), strict=True)
    }


def with_events(
    model: Any, events: GivenEvents | None, in_axes: tuple | None, plan: Plan, times: Times
) -> tuple[Any, tuple | None, Plan]:
    """Returns a model with its events, which of the inputs have members then, and the plan.

    Args:
        model: The model.
        events: The events, which members share; or None.
        in_axes: The parts of model, initial state and args that have members in their first axis.
        plan: How the run goes on.
        times: Its times.

    Raises:
        ValueError: If the method cannot, or given times are out of order.
    """
    if events is None:
        return model, in_axes, plan
    plan = plan_events(plan, events, Checkpointed())
    found = ModelWithEvents.of(model, events.each, times.t0, times.t1)
    if in_axes is None or in_axes[0] is None:
        return found, in_axes, plan
    own = jax.tree.map(lambda x: None, found)
    own = eqx.tree_at(lambda m: m.model, own, in_axes[0], is_leaf=lambda x: x is None)
    return found, (own, *in_axes[1:]), plan


def check_keys(model: Any, key: Any) -> None:
    """Checks that a model with noise has a key or one for each member; see `check_noisy`."""
    check_noisy(model, _one_of(key), Checkpointed())


def with_noise(
    model: Any,
    key: Any,
    in_axes: tuple | None,
    plan: Plan,
    times: Times,
    equal: bool,
    events: GivenEvents | None,
) -> tuple[Any, tuple | None, Plan]:
    """Returns a model with what makes its noise, which of the inputs have members then, and the plan.

    Args:
        model: The model.
        key: A random key or a path, or one for each member.
        in_axes: The parts of model, initial state and args that have members in their first axis.
        plan: How the run goes on.
        times: Its times.
        equal: Whether its steps have the length that was given, except where an event cuts one.
        events: The events; None without any.

    Raises:
        ValueError: If only diffrax has the method, or members have one key.
    """
    if not is_noisy(model):
        return model, in_axes, plan
    found, plan = noisy_model(model, _one_of(key), plan, times, equal, events)
    if not _has_members(key):
        if in_axes is not None:
            raise ValueError("Every member requires its own `key`: pass `jax.random.split(key, members)`.")
        return found, None, plan
    words = key.words if isinstance(key, BrownianPath) else jax.vmap(words_of)(jnp.asarray(key))
    axes = (None, None, None) if in_axes is None else in_axes
    own = jax.tree.map(lambda x: None, found)
    own = eqx.tree_at(_inner, own, _spread(axes[0], _inner(found)), is_leaf=lambda x: x is None)
    own = eqx.tree_at(_words, own, 0, is_leaf=lambda x: x is None)
    return eqx.tree_at(_words, found, words), (own, *axes[1:]), plan


def _spread(axis: Any, model: Any) -> PyTree:
    """Returns an axis for each array of a model."""
    return jax.tree.map(
        lambda a, part: jax.tree.map(lambda _: a, part), axis, model, is_leaf=lambda x: x is None or isinstance(x, int)
    )


def _inner(model: Any) -> Any:
    return model.model if isinstance(model, ModelWithNoise) else model.reactions


def _words(model: Any) -> Any:
    path: Any = model.path if isinstance(model, ModelWithNoise) else model
    return path.words


def _has_members(key: Any) -> bool:
    if isinstance(key, BrownianPath):
        return key.words.ndim == 2
    key = check_key(key, "simulate")
    return key.ndim == (1 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 2)


def _one_of(key: Any) -> Any:
    """Returns the first key or path of several."""
    if key is None or not _has_members(key):
        return key
    return eqx.tree_at(lambda path: path.words, key, key.words[0]) if isinstance(key, BrownianPath) else key[0]


@knows_other_names
def simulate(
    model: Callable[[RealScalarLike, Y, Args], Y] | AbstractStochastic | AbstractReactions | AbstractDelayed,
    y0: Y,
    *,
    t0: RealScalarLike,
    t1: RealScalarLike,
    args: Args = None,
    key: Any = None,
    dt: RealScalarLike | None = None,
    dt0: RealScalarLike | None = None,
    cfl: RealScalarLike | None = None,
    rtol: PyTree | None = None,
    atol: PyTree | None = None,
    solver: Any = None,
    stepsize_controller: Any = None,
    positive: PyTree | None = None,
    domain: Callable[[Y], BoolScalarLike] | None = None,
    save_every: RealScalarLike | None = None,
    saveat: Any = None,
    output: Callable[[RealScalarLike, Y, Args], PyTree] | None = None,
    in_axes: tuple | None = None,
    stop: Any = None,
    events: Any = None,
    max_events: IntScalarLike | None = None,
    store: str | os.PathLike | AbstractStore | None = None,
    resume: bool = True,
    checkpoint_every: float = 60.0,
    checkpoints: AbstractStore | None = None,
    segment_steps: IntScalarLike | None = None,
    max_steps: IntScalarLike | None = None,
    progress: ProgressOption = True,
    throw: bool = True,
) -> Run:
    """Solves a long initial value problem, or one whose solution is large, in segments.

    The steps are the same as in `solve`. While a segment runs, the frames (saved states) of the previous one are
    written to disk, and from time to time a checkpoint. After a crash, the same call resumes from the last checkpoint
    with bitwise identical results. `simulate` must be called from Python; for gradients, or inside `jax.jit`, use
    `solve`.

    A state may be spread over the devices of several processes: create `y0` with `sciml.parallel.Domain.split`, make
    the same call in all processes, and use a folder that all of them can access. Process 0 writes, and all processes
    read.

    Args:
        model: `f(t, y, args) -> dy/dt`, a module or a plain function of one member; or a `sciml.Stochastic`,
            `sciml.Reactions` or `sciml.Delayed`, whose stored past is part of a checkpoint.
        y0: The initial state, a PyTree of floating-point or complex arrays.
        t0: The start time.
        t1: The end time; before `t0` to solve backwards in time.
        args: The third argument of the model, any PyTree.
        key: For a model with noise, as for `solve`: a random key, or an array of keys, one for each member.
        dt: The size of fixed steps, as for `solve`. Members share it, so it must be stable for all of them.
        dt0: The size of the first step under error control, as for `solve`.
        cfl: The Courant number of steps that follow the fastest wave, as for `solve`.
        rtol: Relative tolerance, as for `solve`.
        atol: Absolute tolerance, as for `solve`.
        solver: The method, as for `solve`, with the same default. Methods that `solve` runs in diffrax's loop run in
            sciml's loop here.
        stepsize_controller: A `diffrax.PIDController` instead of `rtol` and `atol`.
        positive: Elements that must stay nonnegative, as for `solve`.
        domain: Further restrictions of admissible states, as for `solve`.
        save_every: The time between two frames, positive. The first frame is at `t0`; `t1` has one only if it is a
            multiple. Without this and `saveat` there are no frames, and `Run.y` is the last state.
        saveat: The times of the frames instead of `save_every`: an array within `[t0, t1]`, in the direction of time.
        output: `output(t, y, args)`, the part of the state to save, computed on the device; by default the state.
        in_axes: For an ensemble, the elements of `(model, y0, args)` whose arrays have members in their first axis, as
            in `jax.vmap`: `(None, 0, None)` for initial states, `(None, 0, 0)` also for args. A member that is done
            leaves the loop; when half have left, the others continue over fewer lanes.
        stop: Conditions that end a member before `t1`, checked at the saved times: a function
            `stop(t, y, args) -> bool`, `sciml.runs.SteadyState()`, `sciml.runs.WallTime(seconds)`, or a list of these.
            NaN always ends a member.
        events: Events, as for `solve`, shared by all members. An event without an `update` ends a member.
        max_events: The number of events to record in `Run.events`, as for `solve`.
        store: A folder for the frames, an `NpzStore`, or a `ZarrStore`. By default frames stay in memory.
        resume: Whether to continue the run in the store. If False, a store that already contains a run raises an error.
        checkpoint_every: The seconds between two checkpoints; 0 for one after every segment.
        checkpoints: A store for checkpoints, with another path than `store`; by default the folder `checkpoints` in
            `store`. A store without a path needs it to resume. For a state that spans hosts, use an `OrbaxStore`.
        segment_steps: The maximum number of steps in a segment, after which the host checks the run; by default a few
            thousand for small states, fewer for large ones.
        max_steps: The maximum number of attempted steps of a member; by default unlimited.
        progress: Whether to show a progress bar, or a function that is called with a `Progress` after every
            segment. It counts the model's time since `t0`.
        throw: Whether to raise an error at the end if the run, or a member, failed.

    Returns:
        A `sciml.runs.Run`: frames that are read on demand, the last state, the status, and the reason why the run
        ended.

    Raises:
        ValueError: If an argument is out of range or does not fit the others.
        TypeError: If an argument has the wrong type or dtype.
        StoreError: If the store cannot be written to, or contains another run; the message lists the differences.
        SolveError: If the solve fails and `throw` is set. The store contains everything that was reached.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.LotkaVolterra()
        options = dict(t0=0.0, t1=200.0, save_every=1.0, store="run", progress=False)
        run = sciml.simulate(model, jnp.array([34.0, 5.9]), **options)
        assert len(run) == 201 and run.finished
        again = sciml.simulate(model, jnp.array([34.0, 5.9]), **options)  # nothing is left to do
        assert (again.values == run.values).all()
        ```
    """
    check_progress(progress, where="simulate")
    check_keys(model, key)
    if not has_equations_of_its_own(model) or isinstance(model, AbstractDAE):
        check_callable(model)
    if output is not None and not callable(output):
        raise TypeError(f"`output` must be callable as `output(t, y, args)`, but is {output!r}.")
    _prepare.check_concrete((model, y0, args), t0=t0, t1=t1, dt=dt, dt0=dt0, save_every=save_every, saveat=saveat)
    model = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, model)
    inputs = read_axes(model, check_state(y0), arrays_of(args), in_axes)
    one = inputs.one()
    check_suits(*one[:2], "`in_axes`")
    with blaming_state(*one[:2]):
        request = Request(
            t0=t0, t1=t1, args=one[2], dt=dt, dt0=dt0, cfl=cfl, rtol=rtol, atol=atol, solver=solver,
            stepsize_controller=stepsize_controller, positive=positive, domain=domain, max_steps=max_steps,
        )  # fmt: skip
        request.check_steps()
        interval = Interval.of(request, one[1])
        if is_noisy(model):
            request = with_noisy_solver(*one[:2], request, interval, by_diffrax=False)
        elif isinstance(model, AbstractDelayed):
            request = with_delays(model, one[1], request, interval, Checkpointed())
            check_first_delays(one[0], one[1], request, interval)
        else:
            request = with_courant_number(model, request._replace(solver=default_solver(one[0], request, one[1])))
        limits = None if inputs.members is None else partial(shared_limit, inputs)
        if not has_equations_of_its_own(model) and request.cfl is None:
            request, interval, _ = settle_step(*one[:2], request, interval, limited_stepper(*one[:2], request), limits)
        plan, times, tolerances = _prepare.plan_of(one[1], request, interval)
        _prepare.check_admissible(plan, y0, one[1], inputs.members)
        found, given = read_events(events, max_events), model
        model, in_axes, plan = with_noise(model, key, in_axes, plan, times, request.fixed_steps, found)
        model, in_axes = with_past(model, in_axes, times)
        model, in_axes, plan = with_events(model, found, in_axes, plan, times)
        changed = has_equations_of_its_own(given) or found is not None
        if changed:
            inputs = read_axes(model, check_state(y0), arrays_of(args), in_axes)
        times, elapsed, ts = _prepare.saved_times(times, t0, t1, save_every, saveat)
        stops = read_stops(stop, elapsed is not None)
        backend = backend_of(model, XLA if changed else USED.get())
        if plan.control is not None or inputs.members is not None:
            backend = decline(model, backend, "its steps are adaptive" if plan.control else "it has members")
        if plan.admissible is not None:
            backend = decline(model, backend, "kernels do not support `positive` and `domain`")
        segment = _prepare.segment_of(
            one[1], times, elapsed, tolerances, plan, output, stops, inputs.members,
            None if segment_steps is None else check_count(segment_steps, "segment_steps", "simulate"), backend,
        )  # fmt: skip
        if backend is not None and segment.impl is None:
            decline(model, backend, "the distance of its saved times is not two or more whole steps")
        return execute(
            segment, inputs, segment.start(inputs), ts,
            name="simulate",
            space=space_of(given),
            depends_on=dict(
                model=model, y0=y0, args=args, t0=t0, t1=t1, dt=request.dt, dt0=dt0, save_every=save_every,
                saveat=saveat, output=output,
                stop=stops.traced, solver=request.solver, stepsize_controller=stepsize_controller, rtol=rtol,
                atol=atol, **({} if request.cfl is None else {"cfl": request.cfl}),
                **{k: x for k, x in dict(positive=positive, domain=domain).items() if x is not None},
                max_steps=max_steps, in_axes=in_axes, segment_steps=segment_steps,
                max_events=None if found is None else found.layout.kept,
            ),
            store=store, resume=resume, checkpoint_every=checkpoint_every, checkpoints=checkpoints, progress=progress,
            throw=throw,
        )  # fmt: skip
