"""The programs of guides and tutorials whose first results `first_results` measures, each with its peers, by name."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx
from jaxtyping import PyTree

import sciml
from sciml import bifurcation, control, inference, models, parallel, spatial, training
from sciml.spatial import Dirichlet, Grid, Neumann, Outflow, Periodic

BOEHM = pathlib.Path(__file__).parents[1] / "docs" / "tutorials" / "data" / "boehm"


class Program(NamedTuple):
    """A function and its argument, by which it is differentiated.

    Attributes:
        fn: The function.
        x: Its argument.
        whole: Whether it is a call from Python that compiles by itself and has no gradient, such as a fit.
    """

    fn: Callable[[PyTree], PyTree]
    x: PyTree
    whole: bool = False


def ours(field: Any, y0: Any, t1: float, args: Any = None, saves: int | None = None, **options: Any) -> Program:
    """Returns a solve as a function of `args`, or of the model where there are none."""
    if saves is not None:
        options["saveat"] = jnp.linspace(0.0, t1, saves)
    if args is None:
        return Program(lambda model: sciml.solve(model, y0, t0=0.0, t1=t1, **options).ys, field)
    return Program(lambda args: sciml.solve(field, y0, t0=0.0, t1=t1, args=args, **options).ys, args)


def theirs(field: Any, y0: Any, t1: float, args: Any, solver: Any, saves: int | None = None, **more: Any) -> Program:
    """Returns the same solve by diffrax."""
    saveat = diffrax.SaveAt(t1=True) if saves is None else diffrax.SaveAt(ts=jnp.linspace(0.0, t1, saves))
    options = dict(stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6), saveat=saveat) | more

    def solve(args: Any) -> Any:
        model, rest = (args, None) if field is None else (field, args)
        return diffrax.diffeqsolve(diffrax.ODETerm(model), solver, 0.0, t1, None, y0, rest, **options).ys

    return Program(solve, args)


def members(program: Program, count: int) -> Program:
    """Returns a program of many members, which differ in their arguments."""
    factors = jnp.linspace(1.0, 1.1, count)
    xs = jax.tree.map(lambda x: x * factors.reshape(-1, *(1,) * x.ndim), program.x)
    return Program(jax.vmap(program.fn), xs)


TIGHT = dict(rtol=1e-6, atol=1e-6)
RHO = jnp.asarray(21.0)


def lorenz(t: Any, y: Any, rho: Any) -> Any:
    """The system of Lorenz."""
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def chain(t: Any, y: Any, k: Any) -> Any:
    """A chain of reactions whose rates lie six decades apart, the last of which feeds the first."""
    rates = k * jnp.logspace(0, 6, y.size, dtype=y.dtype)
    flow = rates * y / (1 + y**2)
    return jnp.roll(flow, 1) - flow


def of_chain(make: Callable, species: int, saves: int | None, *solver: Any, **options: Any) -> Program:
    """Returns a solve of the chain."""
    y0 = jnp.zeros(species).at[0].set(1.0)
    named = dict(solver=solver[0]) if solver else {}
    return make(chain, y0, 1.0, args=jnp.asarray(1.0), saves=saves, **named, **options)


def ball(t: Any, y: Any, restitution: Any) -> Any:
    """A ball in free fall."""
    return jnp.stack([y[1], jnp.full_like(y[1], -9.81)])


def falling(t: Any, y: Any, gravity: Any) -> Any:
    """A ball whose gravity is a parameter, on which the landing depends."""
    return jnp.stack([y[1], -gravity])


def height(t: Any, y: Any, args: Any, **kwargs: Any) -> Any:
    """Its height."""
    return y[0]


def two_compartments(t: Any, y: Any, rates: Any) -> Any:
    """A drug in blood and in tissue."""
    out, there, back = rates
    return jnp.stack([back * y[1] - (out + there) * y[0], there * y[0] - back * y[1]])


def bounces() -> Program:
    """Returns a ball that bounces."""
    return ours(ball, jnp.array([1.0, 0.0]), 2.0, jnp.asarray(0.8), events=BOUNCE, **TIGHT)


def thermostat() -> Program:
    """Returns a room that is heated between two thresholds."""
    on = sciml.Event(lambda t, y, p: y[0] - 19.0, lambda t, y, p: y.at[1].set(1.0), direction=-1)
    off = sciml.Event(lambda t, y, p: y[0] - 22.0, lambda t, y, p: y.at[1].set(0.0), direction=1)
    room = lambda t, y, power: jnp.stack([(4.0 - y[0]) / 3 + power * y[1], 0 * y[1]])  # noqa: E731
    return ours(room, jnp.array([20.0, 1.0]), 3.0, jnp.asarray(12.0), events=[on, off], **TIGHT)


def doses() -> Program:
    """Returns three doses of a drug."""
    update = lambda t, y, args, dose: y.at[0].add(dose)  # noqa: E731
    given = sciml.Schedule(jnp.array([0.0, 8.0, 16.0]), update, jnp.array([100.0, 50.0, 50.0]))
    rates = jnp.array([0.1, 0.3, 0.2])
    return ours(two_compartments, jnp.zeros(2), 24.0, rates, saves=49, events=given)


def patient(clearance: Any, adjoint: Any = sciml.adjoints.Checkpointed()) -> Any:
    """Returns the concentrations of a drug in the blood of a patient."""
    drug = models.TwoCompartment(clearance=clearance)
    given = drug.oral(jnp.arange(7.0), jnp.full(7, 100.0))
    options = dict(adjoint=adjoint, max_steps=2000, max_events=1, rtol=1e-5, atol=1e-5)
    at = jnp.linspace(1.0, 10.0, 6)
    return drug.concentration(sciml.solve(drug, jnp.zeros(4), t0=0.0, t1=10.0, events=given, saveat=at, **options).ys)


CASCADE = "; ".join(
    f"X{i} -> X{i + 1}, k{i}; X{i + 1} -> X{i}, b{i}; k{i} = {10 ** (i / 2):g}; b{i} = 0.1" for i in range(11)
)
ENZYME = """E + S <-> C, kon, koff; C -> E + P, kcat; P => 0, v*P/(K + P)
    kon = 2; koff = 0.5; kcat = 1; v = 0.1; K = koff/kon; E(0) = 0.1; S(0) = 1"""


def network(text: str, saves: int) -> Program:
    """Returns a network of reactions that is written as text."""
    found = models.ReactionNetwork(text)
    return ours(found, found.y0, 20.0, saves=saves, solver=sciml.solvers.Rodas5P())


def sbml() -> Program:
    """Returns a model of a file."""
    found = models.read_sbml(str(BOEHM / "model_Boehm_JProteomeRes2014.xml"))
    return ours(found, found.y0, 240.0, saves=16, solver=sciml.solvers.Rodas5P())


def petab() -> Program:
    """Returns the likelihood of a problem of PEtab."""
    problem = sciml.petab.read_petab(str(BOEHM / "Boehm_JProteomeRes2014.yaml"))
    return Program(problem.log_likelihood, problem.nominal)


def brownian(**options: Any) -> Program:
    """Returns a path of geometric Brownian motion."""
    model = sciml.Stochastic(lambda t, y, args: 0.1 * y, lambda t, y, args: args * y)
    return ours(model, jnp.ones(()), 1.0, jnp.asarray(0.2), key=jax.random.key(0), **(dict(dt=0.01) | options))


def brownian_by_diffrax() -> Program:
    """Returns the same by diffrax."""

    def solve(volatility: Any) -> Any:
        path = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, (), jax.random.key(0))
        drift = diffrax.ODETerm(lambda t, y, args: 0.1 * y)
        noise = diffrax.ControlTerm(lambda t, y, args: args * y, path)
        terms = diffrax.MultiTerm(drift, noise)
        return diffrax.diffeqsolve(terms, diffrax.ItoMilstein(), 0.0, 1.0, 0.01, jnp.ones(()), volatility).ys

    return Program(solve, jnp.asarray(0.2))


def dimers() -> Program:
    """Returns reactions of single molecules."""
    found = models.ReactionNetwork("2 A <-> D, 1.0, 0.5").single_molecules(volume=100.0)
    run = lambda y0: sciml.solve(found, y0, t0=0.0, t1=1.0, key=jax.random.key(0)).ys  # noqa: E731
    return Program(run, jnp.array([100.0, 0.0]), whole=True)


def delayed() -> Program:
    """Returns the equation of Mackey and Glass."""

    def solve(rate: Any) -> Any:
        blood = sciml.Delayed(lambda t, y, then, k: k * then / (1 + then**10) - 0.1 * y, 17.0, history=1.2)
        return sciml.solve(blood, 1.2, t0=0.0, t1=100.0, dt=0.5, args=rate).ys

    return Program(solve, jnp.asarray(0.2))


def implicit() -> Program:
    """Returns a pendulum in Cartesian coordinates, of index three."""

    def pendulum(t: Any, y: Any, rate: Any, length: Any) -> Any:
        (q, v, tension), (dq, dv, _) = y, rate
        return dq - v, dv + tension * q - jnp.array([0.0, -9.81], q.dtype), (q @ q - length**2) / 2

    def solve(length: Any) -> Any:
        start = jnp.array([1.0, 0.0]), jnp.zeros(2), jnp.zeros(())
        return sciml.solve(sciml.DAE(pendulum, index=(1, 2, 3)), start, t0=0.0, t1=1.0, args=length).ys

    return Program(solve, jnp.asarray(1.0))


@functools.cache
def box(points: int, dimensions: int = 2) -> Grid:
    """Returns a grid."""
    return Grid((points,) * dimensions)


def bump(grid: Grid) -> Any:
    """Returns a field with a bump."""
    return spatial.pulse(grid)


def spots(boundary: Any, **options: Any) -> Program:
    """Returns Gray and Scott's reaction and diffusion."""
    grid = Grid((32, 32), 0.0, 0.5)
    start = 0.5 * spatial.pulse(grid)
    y0 = jnp.stack([1.0 - start, 0.5 * start])
    return ours(models.GrayScott(grid, boundary), y0, 20.0, **options)


def cooled() -> Program:
    """Returns heat between walls of three kinds, which needs multigrid."""
    grid = box(32)
    sides = {"x-": Dirichlet(1.0), "x+": spatial.Robin(a=1.0, b=0.5, c=0.0), "y": Neumann(0.0)}
    conductivity = 1.0 + bump(grid)
    return ours(models.Diffusion(grid, sides, conductivity), bump(grid), 0.1)


def by_lines() -> Program:
    """Returns a plain function of four hundred unknowns, diffusion and growth on a line."""

    def field(t: Any, y: Any, rate: Any) -> Any:
        wide = jnp.pad(y, 1, mode="edge")
        return 1e4 * (wide[2:] - 2 * y + wide[:-2]) + rate * y * (1 - y)

    return ours(field, jnp.linspace(0.0, 1.0, 400), 1.0, jnp.asarray(2.0), solver=sciml.solvers.Rodas5P())


def waves(model: Any, points: int = 64) -> Program:
    """Returns an equation in modes."""
    y0 = jnp.sin(2 * jnp.pi * jnp.arange(points) / points)
    return ours(model(points=points, length=20.0), y0, 0.1, dt=1e-3)


def tube() -> Program:
    """Returns a shock tube."""
    grid = Grid(100)
    gas = models.Euler(grid, Outflow())
    left, right = jnp.array([1.0, 0.0, 1.0]), jnp.array([0.125, 0.0, 0.1])
    y0 = gas.conserved(jnp.where((grid.centers[0] < 0.5)[None], left[:, None], right[:, None]))
    return ours(gas, y0, 0.2)


def stirred() -> Program:
    """Returns incompressible flow in a box."""
    flow = models.IncompressibleFlow(box(32), spatial.NoSlip())
    return ours(flow, flow.start(), 0.1, dt=0.01)


def sound() -> Program:
    """Returns sound with layers that absorb it."""
    model = models.Acoustic(box(48), layers=8)
    return ours(model, model.rest(), 0.2, dt=2e-3)


def network_field(make: Callable, *solver: Any, **options: Any) -> Program:
    """Returns thirty-two solves of a field that is a network."""
    net = eqx.nn.MLP(2, 2, 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    weights, rest = eqx.partition(net, eqx.is_inexact_array)
    y0 = jax.random.normal(jax.random.key(1), (32, 2))

    def field(t: Any, y: Any, w: Any) -> Any:
        return eqx.combine(w, rest)(y)

    def solve(w: Any) -> Any:
        return jax.vmap(lambda y: make(field, y, 2.0, w, *solver, saves=21, **options).fn(w))(y0)

    return Program(solve, weights)


def latent() -> Program:
    """Returns a neural differential equation of a record."""
    model = models.neural.NeuralODE(2, width=16, depth=1, key=jax.random.key(0))
    weights, rest = eqx.partition(model, eqx.is_inexact_array)
    run = lambda w: sciml.solve(eqx.combine(w, rest), jnp.ones(2), t0=0.0, t1=1.0, saveat=jnp.linspace(0, 1.0, 11)).ys  # noqa: E731
    return Program(run, weights)


HARES = jnp.array([30.0, 6.0])
YEARS = jnp.linspace(0.0, 15.0, 31)


def hares(model: Any) -> Any:
    """Returns hares and lynxes over the years."""
    options = dict(saveat=YEARS, adjoint=sciml.adjoints.Direct(), throw=False)
    return sciml.solve(model, HARES, t0=0.0, t1=15.0, **options).ys


def fit_four() -> Program:
    """Returns a fit of four parameters."""
    truth = models.LotkaVolterra(alpha=0.55, beta=0.028, gamma=0.8, delta=0.024)
    guess = models.LotkaVolterra(alpha=0.5, beta=0.03, gamma=0.7, delta=0.02)

    def misfit(model: Any, data: Any) -> Any:
        return jnp.log(hares(model)) - jnp.log(data)

    def fit(data: Any) -> Any:
        return sciml.fit(guess, misfit, data, positive=True, progress=False).model.alpha

    return Program(fit, jax.jit(hares)(truth), whole=True)


def fit_by_scipy() -> Program:
    """Returns the same fit by SciPy."""
    from scipy.integrate import solve_ivp
    from scipy.optimize import least_squares

    def run(logs: Any) -> Any:
        a, b, c, d = np.exp(logs)
        field = lambda t, y: [a * y[0] - b * y[0] * y[1], d * y[0] * y[1] - c * y[1]]  # noqa: E731
        return solve_ivp(field, (0.0, 15.0), np.asarray(HARES), t_eval=np.asarray(YEARS), rtol=1e-6, atol=1e-6).y.T

    data = np.log(run(np.log([0.55, 0.028, 0.8, 0.024])))
    guess = np.log([0.5, 0.03, 0.7, 0.02])
    return Program(lambda data: least_squares(lambda x: (np.log(run(x)) - data).ravel(), guess).x, data, whole=True)


def fit_patients() -> Program:
    """Returns a fit of thirty patients."""
    clearances = 0.9 + 0.2 * jax.random.uniform(jax.random.key(0), (30,))
    typical = jnp.asarray(models.TwoCompartment().clearance)

    def misfit(found: Any, data: Any) -> Any:
        return jnp.log(jax.vmap(lambda x: patient(x, sciml.adjoints.Direct()))(found)) - jnp.log(data)

    def fit(data: Any) -> Any:
        return sciml.fit(jnp.full(30, typical), misfit, data, positive=True, progress=False).model

    return Program(fit, jax.jit(jax.vmap(patient))(typical * clearances), whole=True)


def rest() -> Program:
    """Returns the equilibrium of two unknowns."""
    field = lambda t, y, k: jnp.stack([k - y[0] * y[1], y[0] - y[1]])  # noqa: E731
    return Program(lambda k: sciml.steady_state(field, jnp.ones(2), args=k).ys, jnp.asarray(2.0))


def ends() -> Program:
    """Returns a pendulum between two places."""
    field = lambda t, y, k: jnp.stack([y[1], -k * jnp.sin(y[0])])  # noqa: E731
    at = lambda a, b, k: jnp.stack([a[0], b[0] - 0.5])  # noqa: E731
    mesh = jnp.linspace(0.0, 1.0, 11)
    return Program(lambda k: sciml.solve_bvp(field, at, mesh, jnp.zeros((11, 2)), args=k).ys, jnp.asarray(1.0))


def branch() -> Program:
    """Returns the special points of a branch of steady states."""
    field = lambda t, y, k: k["b"] + k["a"] * y - y**3  # noqa: E731
    options = dict(where=lambda k: k["b"], bounds=(-1.0, 1.0), throw=False)

    def folds(a: Any) -> Any:
        args = {"a": a, "b": jnp.asarray(-1.0)}
        return bifurcation.continuation(field, jnp.array([-1.3]), args=args, **options).special.parameter[:2]

    return Program(folds, jnp.asarray(1.0))


def cycle() -> Program:
    """Returns the period of a limit cycle."""
    options = dict(period=6.5, throw=False)
    run = lambda mu: bifurcation.limit_cycle(models.VanDerPol(mu=mu), jnp.array([2.0, 0.0]), **options).period  # noqa: E731
    return Program(run, jnp.asarray(1.0))


def planned() -> Program:
    """Returns the optimal controls of a pendulum."""
    problem = control.ControlProblem(
        lambda t, y, u, k: jnp.stack([y[1], u - k * jnp.sin(y[0])]),
        running=lambda t, y, u, k: y[0] ** 2 + u**2,
        end=lambda t1, y1, k: y1,
        u_bounds=(-2.0, 2.0),
    )
    run = lambda k: control.optimise(problem, jnp.array([1.0, 0.0]), 0.0, t1=3.0, args=k, throw=False).us  # noqa: E731
    return Program(run, jnp.asarray(1.0))


def trained() -> Program:
    """Returns a few steps of training."""
    ts = jnp.linspace(0.0, 3.0, 20)
    net = eqx.nn.MLP(2, 2, 32, 1, activation=jnp.tanh, key=jax.random.key(1))
    starts = jax.random.uniform(jax.random.key(0), (48, 2), minval=-1.0)

    def path(model: Any, y0: Any) -> Any:
        steps = dict(saveat=ts, rtol=1e-3, atol=1e-3, throw=False)
        return sciml.solve(lambda t, y, args: args(y), y0, t0=0.0, t1=3.0, args=model, **steps).ys

    def loss(model: Any, batch: Any, key: Any) -> Any:
        return jnp.mean(jax.vmap(lambda y0: path(model, y0))(batch) ** 2)

    options = dict(optimiser=optax.adam(1e-3), steps=5, batch_size=16, progress=False)
    return Program(lambda y: training.train(net, loss, y, **options).history.loss, starts, whole=True)


def density() -> Any:
    """Returns the posterior of an epidemic's two rates."""
    start, days = jnp.array([762.0, 1.0, 0.0]), jnp.arange(1.0, 15.0)
    counts = np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])

    def ill(sir: Any) -> Any:
        options = dict(adjoint=sciml.adjoints.Direct(), max_steps=300, throw=False, **TIGHT)
        return jnp.maximum(sciml.solve(sir, start, t0=0.0, t1=15.0, saveat=days, **options).ys[:, 1], 1e-6)

    priors = [(lambda m: m.beta, inference.LogNormal(0.5, 0.5)), (lambda m: m.gamma, inference.LogNormal(-0.7, 0.5))]
    observe = lambda m: inference.PoissonCounts(ill(m))  # noqa: E731
    return inference.log_density(models.SIR(beta=1.7, gamma=0.5), observe, counts, priors)


def posterior() -> Program:
    """Returns the density at a place."""
    found = density()
    return Program(lambda z: found(found.unravel(z)), jnp.zeros(2))


def chains() -> Program:
    """Returns draws by NUTS."""
    found = density()
    run = lambda scale: inference.nuts(found, jax.random.key(0), draws=20, warmup=20).positions  # noqa: E731
    return Program(run, jnp.ones(()), whole=True)


def swept() -> Program:
    """Returns a sweep over sixty-four members."""

    def run(mu: Any) -> Any:
        options = dict(t0=0.0, t1=10.0, rtol=1e-3, atol=1e-3, max_steps=500, throw=False)
        return sciml.solve(models.VanDerPol(mu=mu), jnp.array([2.0, 0.0]), **options)

    call = lambda mus: parallel.sweep(run, mus, output=lambda sol: sol.ys[-1], progress=False).values  # noqa: E731
    return Program(call, jnp.linspace(0.1, 5.0, 64), whole=True)


def leaves(count: int, each: bool) -> Program:
    """Returns a hundred decays, in one array or in a leaf each."""
    rates = jnp.linspace(0.5, 2.0, count)
    if not each:
        return ours(lambda t, y, k: -k * y, jnp.ones(count), 1.0, rates)
    y0 = {f"y{i}": jnp.ones(()) for i in range(count)}
    ks = {f"y{i}": rates[i] for i in range(count)}
    return ours(lambda t, y, k: {name: -k[name] * y[name] for name in y}, y0, 1.0, ks)


Make = Callable[[], Program]
CHAIN = functools.partial(of_chain, ours)
KVAERNO = functools.partial(of_chain, theirs)
LYNX = models.LotkaVolterra(alpha=0.5, beta=0.03, gamma=0.8, delta=0.02)
RODAS, BDF, KVAERNO5 = sciml.solvers.Rodas5P(), sciml.solvers.BDF(), diffrax.Kvaerno5()
Y3 = jnp.array([1.0, 0.0, 0.0])
ROBERTSON = models.Robertson()
KS, KDV = models.KuramotoSivashinsky, models.KortewegDeVries
BOUNCE = sciml.Event(height, lambda t, y, args: jnp.stack([0 * y[0], -args * y[1]]), direction=-1)
LANDING = sciml.Event(height, None)

PROGRAMS: dict[str, dict[str, Make]] = {
    "small equations": {
        "lynx and hare": lambda: ours(LYNX, HARES, 20.0, saves=101),
        "lynx and hare | diffrax": lambda: theirs(None, HARES, 20.0, LYNX, diffrax.Tsit5(), saves=101),
        "Lorenz": lambda: ours(lorenz, Y3, 1.0, RHO, **TIGHT),
        "Lorenz | diffrax": lambda: theirs(lorenz, Y3, 1.0, RHO, diffrax.Tsit5()),
        "Lorenz, fixed steps": lambda: ours(lorenz, Y3, 1.0, RHO, dt=0.01),
        "Lorenz, 100 members": lambda: members(ours(lorenz, Y3, 1.0, RHO, **TIGHT), 100),
        "Lorenz, 100 members | diffrax": lambda: members(theirs(lorenz, Y3, 1.0, RHO, diffrax.Tsit5()), 100),
        "100 decays in one array": lambda: leaves(100, each=False),
        "100 decays in 100 leaves": lambda: leaves(100, each=True),
        "delay": delayed,
        "differential-algebraic": implicit,
        "steady state of 2": rest,
        "boundary values": ends,
        "branch of steady states": branch,
        "limit cycle": cycle,
        "optimal control": planned,
    },
    "stiff equations": {
        "Robertson": lambda: ours(ROBERTSON, Y3, 100.0, solver=RODAS),
        "Robertson | diffrax": lambda: theirs(None, Y3, 100.0, ROBERTSON, KVAERNO5),
        "HIRES": lambda: ours(models.HIRES(), jnp.ones(8), 1.0, solver=RODAS),
        "chain of 12, 50 saves": lambda: CHAIN(12, 50, RODAS),
        "chain of 12, 50 saves | diffrax": lambda: KVAERNO(12, 50, KVAERNO5),
        "chain of 12, BDF": lambda: CHAIN(12, 50, BDF),
        "chain of 12, Kvaerno5": lambda: CHAIN(12, 50, KVAERNO5),
        "chain of 12, 100 members": lambda: members(CHAIN(12, None, RODAS), 100),
        "chain of 30": lambda: CHAIN(30, None, RODAS),
        "chain of 30 | diffrax": lambda: KVAERNO(30, None, KVAERNO5),
        "chain of 100": lambda: CHAIN(100, None, RODAS),
        "400 unknowns on a line": by_lines,
    },
    "networks": {
        "enzyme": lambda: network(ENZYME, 50),
        "cascade of 12": lambda: network(CASCADE, 30),
        "SBML": sbml,
        "PEtab": petab,
    },
    "events": {
        "bouncing ball": bounces,
        "landing": lambda: ours(falling, jnp.array([1.0, 0.0]), 2.0, jnp.asarray(9.81), events=LANDING, **TIGHT),
        "landing | diffrax": lambda: theirs(
            falling, jnp.array([1.0, 0.0]), 2.0, jnp.asarray(9.81), diffrax.Tsit5(),
            event=diffrax.Event(height, optx.Newton(1e-5, 1e-5)),
        ),
        "thermostat": thermostat,
        "doses": doses,
        "30 patients": lambda: Program(jax.vmap(patient), jnp.linspace(1.0, 2.0, 30)),
    },
    "noise": {
        "Brownian motion": brownian,
        "Brownian motion | diffrax": brownian_by_diffrax,
        "Brownian motion, 100 members": lambda: members(brownian(), 100),
        "Brownian motion, error control": lambda: brownian(dt=None, rtol=1e-2, atol=1e-3),
        "single molecules": dimers,
    },
    "fields": {
        "reaction and diffusion, walls": lambda: spots(Neumann(0.0)),
        "reaction and diffusion, walls, Bosh3": lambda: spots(Neumann(0.0), solver=diffrax.Bosh3()),
        "reaction and diffusion, periodic": lambda: spots(Periodic()),
        "reaction and diffusion, Euler": lambda: spots(Periodic(), dt=1.0, solver=diffrax.Euler()),
        "heat, unequal walls": cooled,
        "Kuramoto-Sivashinsky": lambda: waves(KS),
        "Korteweg-de Vries": lambda: waves(KDV),
        "shock tube": tube,
        "incompressible flow": stirred,
        "sound": sound,
    },
    "neural models": {
        "network, 32 members": lambda: network_field(ours, rtol=1e-4, atol=1e-4),
        "network, 32 members | diffrax": lambda: network_field(theirs, diffrax.Tsit5()),
        "neural ODE": latent,
        "training": trained,
    },
    "fits": {
        "fit of 4 parameters": fit_four,
        "fit of 4 parameters | SciPy": fit_by_scipy,
        "fit of 30 patients": fit_patients,
        "sweep": swept,
        "posterior": posterior,
        "NUTS": chains,
    },
}  # fmt: skip
