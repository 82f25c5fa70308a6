"""How long a solve and its gradient take to trace, lower and compile, with JAX's caches cleared before each."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml.spatial import Grid, NoSlip, NoSlipWall, Outflow, Reflecting, Sides

from ._harness import Candidate, Group
from ._problems import lorenz
from .networks import SIZES

TOL = 1e-6


def _ours(**steps: Any) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def solve(y0: jax.Array, rho: jax.Array) -> jax.Array:
        return sciml.solve(lorenz, y0, t0=0.0, t1=1.0, args=rho, **steps).ys[-1]

    return solve


def _theirs(controller: Any) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def solve(y0: jax.Array, rho: jax.Array) -> jax.Array:
        term = diffrax.ODETerm(lorenz)
        solution = diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 1.0, 1e-3, y0, args=rho, stepsize_controller=controller
        )
        assert solution.ys is not None
        return solution.ys[-1]

    return solve


def _compiler(fn: Callable[..., jax.Array], gradient: bool) -> Callable[[], Callable[[], Any]]:
    """The compilation is what is timed here, so it stands where other benchmarks have their run."""
    args = jnp.asarray([1.0, 0.0, 0.0], jnp.float32), jnp.asarray(21.0, jnp.float32)

    def run() -> Any:
        jax.clear_caches()
        target = jax.grad(lambda y0, rho: jnp.sum(fn(y0, rho)), argnums=(0, 1)) if gradient else fn
        return jax.jit(lambda y0, rho: target(y0, rho)).lower(*args).compile()

    return lambda: run


def _timed(fn: Callable[..., Any], *args: Any) -> Callable[[], Callable[[], Any]]:
    """Compiles a function anew in every repeat."""

    def run() -> Any:
        jax.clear_caches()
        return jax.jit(lambda *a: fn(*a)).lower(*args).compile()

    return lambda: run


def _summed(solve: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda *args: jnp.sum(solve(*args) ** 2)


def _stiff_rows() -> list[Candidate]:
    rows = []
    fields: dict[str, tuple[Callable, int]] = {"HIRES, 8 unknowns": (sciml.models.HIRES(), 8)}
    for size in (16, 17, 30, 100):
        # every unknown with every other, so that nothing can be taken apart
        fields[f"{size} unknowns, dense"] = (lambda t, y, k: jnp.roll(y, 1) * jnp.mean(y) - k * y**2, size)
    for name, (field, size) in fields.items():

        def solve(y0: jax.Array, k: jax.Array, field: Callable = field) -> jax.Array:
            options: dict[str, Any] = dict(rtol=1e-4, atol=1e-6, solver=sciml.solvers.Rodas5P())
            return sciml.solve(field, y0, t0=0.0, t1=1.0, args=k, **options).ys[-1]

        args = jnp.ones(size), jnp.asarray(2.0)
        rows.append(Candidate(f"{name}, solve", _timed(solve, *args)))
        rows.append(Candidate(f"{name}, gradient", _timed(jax.grad(_summed(solve)), *args)))
    return rows


def _special_rows() -> list[Candidate]:
    """Equations with delays and with algebraic equations, each with its default method or the first of the guide."""

    def late(by_state: bool) -> Any:
        delays = (lambda t, y, k: 1 + 0.1 * y) if by_state else 1.0
        return sciml.Delayed(lambda t, y, past, k: -k * past, delays, history=1.0)

    def field(t: Any, y: jax.Array, k: jax.Array) -> jax.Array:
        return jnp.stack([-k * y[0], y[0] + y[1] - 1])

    def residual(t: Any, y: jax.Array, rate: jax.Array, k: jax.Array) -> jax.Array:
        return field(t, y, k) - rate * jnp.array([1.0, 0.0])

    def pendulum(t: Any, y: Any, rate: Any, length: jax.Array) -> Any:
        (q, v, tension), (dq, dv, _) = y, rate
        return dq - v, dv + tension * q - jnp.array([0.0, -9.81]), (q @ q - length**2) / 2

    two, mass = jnp.array([1.0, 0.0]), np.diag([1.0, 0.0])
    equations: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "a constant delay": (late(False), jnp.asarray(1.0), {}),
        "a delay by the state": (late(True), jnp.asarray(1.0), {}),
        "a mass matrix, Rodas5P": (field, two, dict(solver=sciml.solvers.Rodas5P(mass=mass))),
        "a DAE of index one": (sciml.DAE(residual), two, {}),
        "a DAE of index three": (sciml.DAE(pendulum, index=(1, 2, 3)), (two, jnp.zeros(2), jnp.zeros(())), {}),
    }
    rows = []
    for name, (model, y0, how) in equations.items():

        def loss(k: jax.Array, model: Any = model, y0: Any = y0, how: dict = how) -> jax.Array:
            sol = sciml.solve(model, y0, t0=0.0, t1=1.0, args=k, rtol=1e-4, atol=1e-6, throw=False, **how)
            return sum(jnp.sum(x[-1]) for x in jax.tree.leaves(sol.ys))

        rows.append(Candidate(f"{name}, solve", _timed(loss, jnp.asarray(1.0))))
        rows.append(Candidate(f"{name}, gradient", _timed(jax.grad(loss), jnp.asarray(1.0))))
    return rows


def _wave_rows() -> list[Candidate]:
    rows = []
    for modes in (64, 128, 512):
        model = sciml.models.KortewegDeVries(points=modes, length=20.0)

        def solve(y0: jax.Array, model: Any = model) -> jax.Array:
            return sciml.solve(model, y0, t0=0.0, t1=0.1, dt=1e-3, solver=sciml.solvers.ETDRK(order=4)).ys[-1]

        y0 = jnp.sin(jnp.linspace(0.0, 6.28, modes))
        rows.append(Candidate(f"{modes} points, solve", _timed(solve, y0)))
        rows.append(Candidate(f"{modes} points, 32 members", _timed(jax.vmap(solve), jnp.stack([y0] * 32))))
        rows.append(Candidate(f"{modes} points, gradient", _timed(jax.grad(_summed(solve)), y0)))
    return rows


def _network_rows() -> list[Candidate]:
    rows = []
    for name, (inputs, width, depth) in SIZES.items():
        network = eqx.nn.MLP(inputs, inputs, width, depth, activation=jnp.tanh, key=jax.random.key(0))
        weights, rest = eqx.partition(network, eqx.is_inexact_array)
        saved = jnp.linspace(0.0, 2.0, 41)

        def field(t: Any, y: jax.Array, w: Any, rest: Any = rest) -> jax.Array:
            return eqx.combine(w, rest)(y)

        def ours(w: Any, y: jax.Array, field: Callable = field) -> jax.Array:
            options: dict[str, Any] = dict(rtol=1e-4, atol=1e-4, saveat=saved)
            return sciml.solve(field, y, t0=0.0, t1=2.0, args=w, **options).ys

        def theirs(w: Any, y: jax.Array, field: Callable = field) -> jax.Array:
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 2.0, None, y, w,
                saveat=diffrax.SaveAt(ts=saved), stepsize_controller=diffrax.PIDController(1e-4, 1e-4),
            )  # fmt: skip
            assert solution.ys is not None
            return solution.ys

        def loss(solve: Callable) -> Callable:
            return _summed(jax.vmap(solve, in_axes=(None, 0)))

        y0 = jnp.ones((32, inputs))
        for what, of in (("32 members", lambda f: f), ("gradient", jax.grad)):
            rows.append(Candidate(f"sciml, {name}, {what}", _timed(of(loss(ours)), weights, y0)))
            label = f"diffrax, {name}, {what}"
            rows.append(Candidate(label, _timed(of(loss(theirs)), weights, y0), f"sciml, {name}, {what}"))
    return rows


def _second_rows() -> list[Candidate]:
    """Second derivatives by three initial values, each library by the adjoint that it recommends for them."""
    rho, options = jnp.asarray(21.0), dict(rtol=TOL, atol=TOL)

    def ours(y0: jax.Array) -> jax.Array:
        return sciml.solve(lorenz, y0, t0=0.0, t1=1.0, args=rho, adjoint=sciml.adjoints.Direct(), **options).ys[-1]

    def theirs(y0: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lorenz), diffrax.Tsit5(), 0.0, 1.0, 1e-3, y0, args=rho,
            stepsize_controller=diffrax.PIDController(**options), adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        assert solution.ys is not None
        return solution.ys[-1]

    y0 = jnp.asarray([1.0, 0.0, 0.0])
    return [
        Candidate("sciml, Hessian", _timed(jax.jacfwd(jax.jacfwd(_summed(ours))), y0)),
        Candidate("diffrax, Hessian", _timed(jax.jacfwd(jax.jacfwd(_summed(theirs))), y0), "sciml, Hessian"),
    ]


def _at_rest(model: Any, grid: Grid) -> Any:
    """A state of a model, whatever it is."""
    name = type(model).__name__
    if name in ("CompressibleNavierStokes", "Euler"):
        return model.conserved(jnp.ones((grid.ndim + 2, *grid.shape)))
    if name in ("ShallowWater", "NavierStokes3D"):
        return jnp.ones((3, *grid.shape))
    return model.rest() if name == "Acoustic" else model.start()


def _flow_rows() -> list[Candidate]:
    """On small and on large grids, and split over the devices that there are, if more than one."""
    walls = {"x-": Outflow(), "x+": NoSlipWall(), "y": Reflecting()}
    waves, devices = ("Maxwell", "ElasticWave", "Acoustic"), jax.device_count()
    domain = lambda boundary: sciml.parallel.Domain(  # noqa: E731
        ("x", None), boundary=boundary, mesh=sciml.parallel.mesh(member=1, x=devices)
    )

    def made(name: str, grid: Grid, split: bool) -> tuple[Any, Any]:
        """The model, and its domain."""
        kind = getattr(sciml.models, name)
        if name in waves:
            over = domain(None) if split else None
            return kind(grid, layers=4, domain=over), over
        if name == "IncompressibleFlow":
            return kind(grid, NoSlip()), None
        if name == "NavierStokes3D":
            return kind(grid), None
        if name != "CompressibleNavierStokes":
            return kind(grid, Reflecting()), None
        over = domain(Sides(grid, walls)) if split else None
        return kind(grid, over or walls), over

    rows, areas, volumes = [], ((64, 64), (512, 512)), ((16, 16, 16), (64, 64, 64))
    grids = dict.fromkeys((*waves, "CompressibleNavierStokes", "IncompressibleFlow", "Euler", "ShallowWater"), areas)
    grids |= {"Euler": (*areas, *volumes), "IncompressibleFlow": (*areas, *volumes), "NavierStokes3D": volumes}
    for name, shapes in grids.items():
        for shape in shapes:
            grid = Grid(shape)
            for split in (False, True) if devices > 1 and name in (*waves, "CompressibleNavierStokes") else (False,):
                model, over = made(name, grid, split)
                y0 = _at_rest(made(name, grid, False)[0], grid)
                explicit = {} if name in waves or name == "NavierStokes3D" else dict(solver=sciml.solvers.SSPRK33())

                def solve(y: Any, model: Any = model, over: Any = over, explicit: dict = explicit) -> Any:
                    if over is None:
                        sol = sciml.solve(model, y, t0=0.0, t1=0.01, dt=1e-4, **explicit)
                        return jax.tree.map(lambda x: x[-1], sol.ys)

                    def run(y: Any, model: Any) -> Any:
                        how = dict(dt=1e-4, norm=over.rms, throw=False) | explicit
                        return sciml.solve(model, y, t0=0.0, t1=0.01, **how).ys

                    return jax.tree.map(lambda x: x[-1], over.run(run, y, model))

                if over is not None and hasattr(model, "to_blocks"):
                    y0 = model.to_blocks(y0)
                loss = lambda y, solve=solve: sum(jnp.sum(x**2) for x in jax.tree.leaves(solve(y)))  # noqa: E731
                where = f"{name}, {shape[0]}^{grid.ndim}" + (f", {devices} devices" if split else "")
                rows.append(Candidate(f"{where}, solve", _timed(solve, y0)))
                rows.append(Candidate(f"{where}, gradient", _timed(jax.grad(loss), y0)))
    return rows


def groups() -> list[Group]:
    found = []
    for how, steps, controller in (
        ("1000 fixed steps", dict(dt=1e-3), diffrax.ConstantStepSize()),
        (f"adaptive, rtol = atol = {TOL:g}", dict(rtol=TOL, atol=TOL), diffrax.PIDController(rtol=TOL, atol=TOL)),
    ):
        rows = []
        for gradient in (False, True):
            what = "gradient" if gradient else "solve"
            rows += [
                Candidate(f"sciml, {what}", _compiler(_ours(**steps), gradient)),
                Candidate(f"diffrax, {what}", _compiler(_theirs(controller), gradient), f"sciml, {what}"),
            ]
        found.append(
            Group(
                f"Time to trace, lower and compile: one Lorenz system, {how}, float32", rows, repeats=3, compiled=False
            )
        )
    for title, rows in (
        ("networks, rtol = atol = 1e-4, 41 saved times", _network_rows()),
        ("stiff systems with Rodas5P", _stiff_rows()),
        ("delays and algebraic equations, rtol = 1e-4, atol = 1e-6", _special_rows()),
        ("the Korteweg-de Vries equation with ETDRK4", _wave_rows()),
        ("flows and waves in two and three dimensions, 100 steps", _flow_rows()),
        ("second derivatives of one Lorenz system", _second_rows()),
    ):
        head = f"Time to trace, lower and compile: {title}, float32"
        found.append(Group(head, rows, repeats=1, compiled=False))
    return found
