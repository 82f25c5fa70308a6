"""Stiff systems of 3 to 3000 unknowns: Robertson's reaction in groups, beside native code; and fields of two species.

diffsol is Rust with a model compiled by LLVM, CVODE is C; both take BDF steps of variable order. Its own peers run only
where they are installed (`make bench` installs them).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, Measured, in_float64, jitted, table

END = 4e10
TOL = 1e-4
FLOOR = 1e-8  # of the absolute error: the second species of Robertson's reaction is of the size 1e-5
SIZES = (1, 10, 40, 100, 1000)
MEMBERS = 100
METHODS = {"Rodas5P": sciml.solvers.Rodas5P(), "BDF": sciml.solvers.BDF()}


def robertson_groups(t: Any, y: jax.Array, args: Any) -> jax.Array:
    """The reaction in as many cells as the state has, which do not know of one another."""
    del t, args
    a, b, c = y.reshape(3, -1)
    slow, fast = -0.04 * a + 1e4 * b * c, 3e7 * b * b
    return jnp.concatenate([slow, -slow - fast, fast])


def brusselator(t: Any, y: jax.Array, args: Any) -> jax.Array:
    """Two species that diffuse on a line between walls, in the order of the points."""
    del t, args
    u, v = y.reshape(-1, 2).T
    spread = (u.size + 1) ** 2 / 50

    def laplacian(x: jax.Array, wall: float) -> jax.Array:
        wide = jnp.pad(x, 1, constant_values=wall)
        return wide[2:] - 2 * x + wide[:-2]

    du = 1 + u * u * v - 4 * u + spread * laplacian(u, 1.0)
    dv = 3 * u - u * u * v + spread * laplacian(v, 3.0)
    return jnp.stack([du, dv], axis=1).reshape(-1)


def start(cells: int) -> np.ndarray:
    x = np.arange(1, cells + 1) / (cells + 1)
    return np.stack([1 + np.sin(2 * np.pi * x), np.full(cells, 3.0)], axis=1).reshape(-1)


def brusselator_on_a_grid(t: Any, y: jax.Array, args: Any) -> jax.Array:
    """The same on a square between walls that nothing passes."""
    del t, args
    side = round((y.size // 2) ** 0.5)
    state = y.reshape(side, side, 2)
    wide = jnp.pad(state, ((1, 1), (1, 1), (0, 0)), mode="edge")
    around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * state
    u, v = state[..., 0], state[..., 1]
    product = u * u * v
    rate = jnp.stack([1 + product - 4.4 * u, 3.4 * u - product], axis=-1) + side**2 / 500 * around
    return rate.reshape(-1)


def start_on_a_grid(side: int) -> np.ndarray:
    x = (np.arange(side) + 0.5) / side
    u, v = 22 * x * (1 - x) ** 1.5, 27 * x * (1 - x) ** 1.5
    return np.stack([np.broadcast_to(u[None], (side, side)), np.broadcast_to(v[:, None], (side, side))], -1).reshape(-1)


def ours(
    model: Any, y0: jax.Array, end: float, rtol: float, atol: float, solver: Any = sciml.solvers.Rodas5P()
) -> jax.Array:
    return sciml.solve(model, y0, t0=0.0, t1=end, rtol=rtol, atol=atol, solver=solver).ys[-1]


def _diffsol(groups: int) -> Callable[[], Callable[[], Any]]:
    def build() -> Callable[[], Any]:
        import pydiffsol  # pyright: ignore[reportMissingImports]

        model = f"""
            in_i {{ k1 = 0.04, k2 = 10000, k3 = 30000000 }}
            u_i {{ (0:{groups}): x = 1, ({groups}:{2 * groups}): y = 0, ({2 * groups}:{3 * groups}): z = 0 }}
            F_i {{ -k1 * x_i + k2 * y_i * z_i, k1 * x_i - k2 * y_i * z_i - k3 * y_i * y_i, k3 * y_i * y_i }}
        """
        dense = groups <= 10
        kind = pydiffsol.nalgebra_dense if dense else pydiffsol.faer_sparse
        ode = pydiffsol.Ode(model, matrix_type=kind, ode_solver=pydiffsol.bdf)
        ode.rtol, ode.atol = TOL, FLOOR
        rates = np.array([0.04, 1e4, 3e7])
        return lambda: np.asarray(ode.solve(rates, END).ys)[:, -1]

    return build


def exact(model: Any, y0: np.ndarray, end: float) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda y: ours(model, y, end, 1e-9, 1e-12))(jnp.asarray(y0)))


def relative(reference: np.ndarray, floor: float) -> Callable[[Any], float]:
    def error(out: Any) -> float:
        got = np.asarray(out).reshape(-1)[: reference.size]
        return float(np.max(np.abs(got - reference) / (np.abs(reference) + floor)))

    return error


def _robertson(groups: int) -> Group:
    with jax.enable_x64(True):
        y0 = jnp.concatenate([jnp.ones(groups), jnp.zeros(2 * groups)])
    error = relative(np.repeat(exact(robertson_groups, np.array([1.0, 0.0, 0.0]), END), groups), 1e-6)

    def forward(y0: jax.Array, solver: Any) -> jax.Array:
        return ours(robertson_groups, y0, END, TOL, FLOOR, solver)

    rows = []
    for name, solver in METHODS.items():
        run = partial(forward, solver=solver)
        gradient = jax.grad(lambda y, run=run: jnp.sum(run(y) ** 2))
        rows += [
            Candidate(f"sciml, {name}", in_float64(jitted(run, y0)), "diffsol, BDF", error),
            Candidate(f"sciml, {name}, gradient", in_float64(jitted(gradient, y0)), f"sciml, {name}"),
        ]
    rows.append(Candidate("diffsol, BDF", _diffsol(groups), error=error))
    title = f"Robertson in {groups} groups, {3 * groups} unknowns, t to {END:g}, rtol = {TOL:g}"
    return Group(title, rows, table=with_winner)


def with_winner(group: Group, measured: list[Measured]) -> str:
    """The table, and below it which method was the fastest, of sciml's and of all: gradients do not count."""
    found = {row.label: row.median for row in measured if row.times and "gradient" not in row.label}
    if not found:
        return table(group, measured)
    fastest = min(found, key=lambda label: found[label])
    own = min((label for label in found if label.startswith("sciml")), key=lambda label: found[label], default="none")
    return f"{table(group, measured)}\nThe fastest: {fastest}; of sciml's: {own}.\n"


def _members(groups: int) -> Group:
    with jax.enable_x64(True):
        one = jnp.concatenate([jnp.ones(groups), jnp.zeros(2 * groups)])
        y0 = jnp.broadcast_to(one, (MEMBERS, one.size)) * jnp.linspace(0.9, 1.1, MEMBERS)[:, None]

    def forward(y0: jax.Array, solver: Any) -> jax.Array:
        return jax.vmap(lambda y: ours(robertson_groups, y, END, TOL, FLOOR, solver))(y0)

    def one_after_another() -> Callable[[], Any]:
        run = _diffsol(groups)()
        return lambda: [run() for _ in range(MEMBERS)]

    rows = [
        *(Candidate(f"sciml, {n}", in_float64(jitted(partial(forward, solver=s), y0))) for n, s in METHODS.items()),
        Candidate("diffsol, BDF, one after another", one_after_another, "sciml, Rodas5P"),
    ]
    return Group(
        f"{MEMBERS} members of Robertson in {groups} groups, {3 * groups} unknowns each", rows, table=with_winner
    )


def groups() -> list[Group]:
    return [*map(_robertson, SIZES), _members(10)]
