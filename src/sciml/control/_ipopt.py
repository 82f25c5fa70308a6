"""Ipopt, through cyipopt: the problem on segments as a sparse nonlinear program, solved on the host."""

import importlib
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import concrete
from .._same_code import filter_jit
from .._status import Status
from ._plan import ControlPlan, Warm
from ._start import WARM, Given, Numerics, on_segments, started
from ._transcription import SLACK, Boxes, Variables, basis_of

# The unknowns are the first state and the duration, the states at the points, and the controls. The constraints are the
# collocation equations, path constraints and conditions at the end; bounds are bounds of unknowns. Derivatives are the
# blocks of `Transcription.gradient`, one for each point, as triplets of row, column and value; Ipopt adds up triplets
# of the same place.

_STATUS = {0: "successful", 1: "stagnated", 2: "infeasible", 3: "stagnated", -1: "max_steps_reached", -13: "nonfinite"}
"""Statuses of Ipopt; others mean that the iteration diverged. 1 is its looser, acceptable tolerance."""

_OPTIONS = {"print_level": 0, "sb": "yes", "bound_relax_factor": 0.0}  # bounds have their own slack
_WARM = {
    "warm_start_init_point": "yes",
    "mu_init": WARM,
    "warm_start_bound_push": 1e-8,
    "warm_start_slack_bound_push": 1e-8,
    "warm_start_mult_bound_push": 1e-8,
}


class IpoptResult(NamedTuple):
    """The end of the iteration: unknowns with their multipliers, a code of `Status`, the number of iterations."""

    warm: Warm
    status: Array
    steps: Array


def cyipopt() -> Any:
    """Imports cyipopt."""
    try:
        return importlib.import_module("cyipopt")
    except ImportError as error:
        raise ImportError("`method=\"ipopt\"` requires cyipopt: `pip install 'sciml-jax[ipopt]'`.") from error


@eqx.filter_custom_jvp
def found_by_ipopt(
    given: Given, guess: Any, max_steps: Any, numerics: Numerics, options: dict[str, Any]
) -> IpoptResult:
    """Returns a minimum, without derivatives.

    Raises:
        TypeError: If an argument is traced, other than by a derivative.
    """
    library, (warm, bounds) = cyipopt(), _begun(given, guess, numerics)
    if not all(map(concrete, jax.tree.leaves((warm, max_steps)))):
        raise TypeError(
            '`method="ipopt"` runs on the host and supports no traced values. Call it outside of `jax.jit` and '
            '`jax.vmap`, and pass parameters that are differentiated as `args`; or use `method="collocation"`.'
        )
    program = _Program(given, numerics, warm, bounds)
    most = np.zeros_like(program.least)
    ipopt = library.Problem(len(program.lower), len(most), program, program.lower, program.upper, program.least, most)
    # gradients and the barrier then have the sizes that they have at one point, for any number of them
    count = float(np.prod(warm.unknowns.inner.shape[:2]))
    own = _OPTIONS | {"tol": numerics.tolerance, "max_iter": int(max_steps), "obj_scaling_factor": count}
    for name, value in (own | (_WARM if isinstance(guess, ControlPlan) else {}) | options).items():
        ipopt.add_option(name, value)
    x, info = ipopt.solve(*program.start())
    free = program.lower < program.upper
    v = program.unknowns(x, info["mult_g"], free * info["mult_x_L"], free * info["mult_x_U"])
    limits = _values(given, warm._replace(unknowns=v), numerics)[1].force
    v = jax.tree.map(jnp.asarray, v._replace(slack=jax.tree.map(jnp.negative, limits)))
    status = jnp.int32(Status[_STATUS.get(info["status"], "diverged")])
    return IpoptResult(warm._replace(unknowns=v), status, jnp.int32(program.steps))


@found_by_ipopt.def_jvp
def _(primals: Any, tangents: Any) -> Any:
    found = found_by_ipopt(*primals)
    return found, jax.tree.map(lambda x: None, found)


@filter_jit
def _begun(given: Given, guess: Any, numerics: Numerics) -> tuple[Warm, tuple[Boxes, Array]]:
    """Returns the first iterate, and bounds with the values of what is not free."""
    problem, v, _ = started(given, numerics, guess)
    if isinstance(guess, ControlPlan):
        v = v._replace(force=guess.warm.unknowns.force)
    return Warm(v, problem.sizes, problem.scale), (problem.boxes, problem.fixed)


@filter_jit
def _values(given: Given, warm: Warm, numerics: Numerics) -> tuple[Array, Variables]:
    return on_segments(given, numerics, warm.sizes, warm.scale).values(warm.unknowns)


@filter_jit
def _derivatives(given: Given, warm: Warm, numerics: Numerics) -> tuple:
    """Returns the gradient of the Lagrangian, and derivatives at each point and at the end.

    They are first ones of the constraints and second ones of the Lagrangian, by the state, the controls of the segment,
    and the duration.
    """
    problem, v = on_segments(given, numerics, warm.sizes, warm.scale), warm.unknowns
    gradient, (points, end) = problem.gradient(v, jnp.zeros_like(warm.scale), second=True)
    (n, d), (e, m) = (v.inner.shape[2], v.inner.shape[1]), v.controls.shape[1:]
    read = np.zeros((d, n + m + 1, n + e * m + 1), points.dtype)
    read[:, :n, :n], read[:, -1, -1] = np.eye(n), 1
    read[:, n:-1, n:-1] = np.einsum("je,ab->jaeb", problem.basis.spread, np.eye(m)).reshape(d, m, e * m)
    slopes = jnp.einsum("kjav,jvp->kjap", points, read)
    hessian = jnp.einsum("jvq,kjvp->kjqp", read, slopes[:, :, : n + m + 1])
    return gradient[:3], slopes[:, :, n + m + 1 :], end[n + 1 :], hessian, end[: n + 1]


class _Program:
    """The nonlinear program, with the methods that cyipopt calls."""

    def __init__(self, given: Given, numerics: Numerics, warm: Warm, bounds: tuple[Boxes, Array]):
        self.given, self.numerics, self.warm, self.steps = given, numerics, warm, 0
        self.latest: dict[Any, tuple] = {}
        self.first = v = jax.tree.map(np.asarray, warm.unknowns)
        (count, d, n), (e, m), basis = v.inner.shape, v.controls.shape[1:], basis_of(*numerics[:2], v.inner.dtype)
        boxes, fixed = jax.tree.map(np.asarray, bounds)
        free = np.append(numerics.free, given.problem.t1_bounds is not None)

        def side(number: int, sign: float) -> np.ndarray:
            start = np.where(free, boxes.start[number], fixed)
            inner = np.tile(boxes.y[number] + sign * SLACK, count * d)
            return np.concatenate([start, inner, np.full(v.controls.size, sign * np.inf)])

        self.lower, self.upper = side(0, -1.0), side(1, 1.0)
        # controls at points are not unknowns but combinations of them: their bounds are constraints
        paths = np.ones(v.force.points.shape[2] - 2 * (n + m), bool)
        self.kept = 2 * n + np.flatnonzero(np.append(np.isfinite(np.concatenate(boxes.u)), paths))
        self.sizes = v.inner.size, count * d * self.kept.size, v.end.size, v.slack.end.size
        self.least = np.repeat([0, -np.inf, 0, -np.inf], self.sizes)

        start, inner, controls = self.split(np.arange(self.lower.size))
        controls = np.broadcast_to(controls.reshape(count, 1, e * m), (count, d, e * m))
        points = np.concatenate([inner, controls, np.full((count, d, 1), n)], axis=2)
        before = np.concatenate([start[None, :n], inner[:-1, -1]])
        nodes, last = np.concatenate([before[:, None], inner], axis=1), np.append(inner[-1, -1], n)
        defects, limits, *ends = self.parts(np.arange(self.least.size))
        rows, ends = np.concatenate([defects, limits], axis=2), np.concatenate(ends)
        self.slopes_at = _places(
            (defects[:, :, None], nodes[:, None]), (rows[..., None], points[:, :, None]), (ends[:, None], last)
        )
        self.derivative = np.broadcast_to(basis.derivative[None, :, :, None], (count, d, d + 1, n))
        pairs = [[x[..., i] for i in np.tril_indices(x.shape[-1])] for x in (points, last)]
        self.curvatures_at = _places(*((np.maximum(*pair), np.minimum(*pair)) for pair in pairs))

    def split(self, x: np.ndarray) -> list[np.ndarray]:
        """Returns unknowns: first state and duration, states, and controls."""
        v = self.first
        parts = np.split(x, np.cumsum([v.start.size, v.inner.size]))
        return [part.reshape(like.shape) for part, like in zip(parts, v[:3])]

    def parts(self, x: np.ndarray) -> list[np.ndarray]:
        """Returns numbers of constraints: of equations, of inequalities at points, and of both kinds at the end."""
        defects, limits, *ends = np.split(x, np.cumsum(self.sizes[:-1]))
        shape = self.first.inner.shape
        return [defects.reshape(shape), limits.reshape(*shape[:2], -1), *ends]

    def start(self) -> list[np.ndarray]:
        """Returns the first unknowns, the multipliers of constraints, and those of lower and upper bounds."""
        v, n = self.first, self.first.inner.shape[2]
        of_constraints = v.defects, v.force.points[:, :, self.kept], v.end, v.force.end
        start, inner = v.force.start.reshape(2, -1), v.force.points[:, :, : 2 * n].reshape(*v.inner.shape[:2], 2, n)
        of_bounds = [(start[side], inner[:, :, side], np.zeros_like(v.controls)) for side in (0, 1)]
        return [np.concatenate([x.ravel() for x in part]) for part in (v[:3], of_constraints, *of_bounds)]

    def unknowns(self, x: np.ndarray, multipliers: np.ndarray, lower: Any = None, upper: Any = None) -> Variables:
        """Returns unknowns with multipliers, and slacks of zero."""
        defects, limits, end, at_end = self.parts(multipliers)
        force, slack = (jax.tree.map(np.zeros_like, self.first.slack) for _ in range(2))
        force.points[:, :, self.kept] = limits
        if lower is not None:
            below, above = self.split(lower), self.split(upper)
            force.start[:] = np.concatenate([below[0], above[0]])
            force.points[:, :, : 2 * below[1].shape[2]] = np.concatenate([below[1], above[1]], axis=2)
        v = Variables(*self.split(x), defects, end, slack, force._replace(end=at_end))
        return jax.tree.map(lambda x: jnp.asarray(x, self.first.inner.dtype), v)

    def evaluated(self, function: Any, x: np.ndarray, multipliers: Any = None, factor: float = 1.0) -> Any:
        """Returns the result of `_values` or `_derivatives`; cyipopt reads it in parts."""
        key = x.tobytes(), factor, None if multipliers is None else multipliers.tobytes()
        if self.latest.get(function, (None,))[0] != key:
            v = self.unknowns(x, np.zeros_like(self.least) if multipliers is None else multipliers)
            warm = self.warm._replace(unknowns=v, scale=self.warm.scale * jnp.asarray(factor, self.warm.scale.dtype))
            self.latest[function] = key, jax.tree.map(np.asarray, function(self.given, warm, self.numerics))
        return self.latest[function][1]

    def objective(self, x: np.ndarray) -> float:
        return float(self.evaluated(_values, x)[0])

    def constraints(self, x: np.ndarray) -> np.ndarray:
        found = self.evaluated(_values, x)[1]
        return _flat(found.defects, found.force.points[:, :, self.kept], found.end, found.force.end)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return _flat(*self.evaluated(_derivatives, x)[0])

    def jacobianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        return self.slopes_at

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        slopes, end = self.evaluated(_derivatives, x)[1:3]
        n = self.derivative.shape[3]
        return _flat(self.derivative, slopes[:, :, np.append(np.arange(n), n + self.kept)], end)

    def hessianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        return self.curvatures_at

    def hessian(self, x: np.ndarray, multipliers: np.ndarray, factor: float) -> np.ndarray:
        found = self.evaluated(_derivatives, x, multipliers, factor)[3:]
        return _flat(*(x[..., *np.tril_indices(x.shape[-1])] for x in found))

    def intermediate(self, _: int, steps: int, *rest: Any) -> None:
        self.steps = steps


def _flat(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate([x.ravel() for x in parts]).astype(np.float64)


def _places(*pairs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows and the columns of all triplets."""
    rows, columns = zip(*(np.broadcast_arrays(*pair) for pair in pairs))
    return tuple(np.concatenate([x.ravel() for x in of]) for of in (rows, columns))  # pyright: ignore
