"""The contracts of methods, adjoints and models: what breaks one is told so with numbers."""

from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import solvers, spatial, verify
from sciml.kernels import stencil
from tests.solvers.methods.around.test_history import ADAPTIVE


class EulerLike(solvers.AbstractStepper):
    """Euler's method, of which a subclass breaks one promise."""

    order = 1
    evaluations = 1
    has_error = False

    def step(self, field, t, h, y, memory):
        return solvers.Step(y + h * field(t, y))


class Modes(sciml.AbstractSemilinear):
    """Growth with the cosine, damped by a linear part."""

    rate: jax.Array

    def transform(self, y):
        return y

    def inverse(self, modes):
        return modes

    def linear(self, args):
        return -jnp.array([1.0, 3.0], self.rate.dtype)

    def rest(self, t, modes, args):
        return self.rate * jnp.cos(jnp.asarray(t, modes.dtype)) * modes


def damped():
    def exact(problem, t):
        rates = jnp.array([1.0, 3.0], problem.y0.dtype)
        return problem.y0 * jnp.exp(problem.model.rate * jnp.sin(t) - rates * t)

    return verify.Problem(Modes(jnp.array(1.2)), jnp.array([1.0, 0.5]), 0.0, 1.0, exact=exact)


class Springs(sciml.AbstractSecondOrder):
    """Two springs of one stiffness."""

    stiffness: jax.Array

    def acceleration(self, t, q, args):
        return -self.stiffness * q


def swinging():
    def exact(problem, t):
        (q, v), omega = problem.y0, jnp.sqrt(problem.model.stiffness)
        c, s = jnp.cos(omega * t), jnp.sin(omega * t)
        return q * c + v / omega * s, v * c - q * omega * s

    y0 = (jnp.array([1.0, 0.5]), jnp.array([0.0, -0.3]))
    return verify.Problem(Springs(jnp.array(2.0)), y0, 0.0, 2.0, exact=exact)


# --- methods


@pytest.mark.parametrize(
    "solver, options",
    [
        (diffrax.Heun(), {}),
        (ADAPTIVE, {}),
        (solvers.Rosenbrock23(), {"steps": (64, 128, 256)}),
        (solvers.ETDRK(order=2), {"problem": damped}),
        (solvers.VelocityVerlet(), {"problem": swinging}),
        (solvers.SSPRK43(), {"order": 3}),
        (solvers.LowStorage(order=3), {"order": 3}),
    ],
    ids=["Heun", "several steps", "Rosenbrock23", "ETDRK2", "VelocityVerlet", "SSPRK43", "Williamson3"],
)
def test_methods_of_the_library_keep_their_promises(solver, options):
    options = options | ({"problem": options["problem"]()} if "problem" in options else {})
    order = options.pop("order", 2)
    report = verify.check_stepper(solver, **options)
    assert abs(report.forwards.order - order) < 0.2
    assert report.skipped == ()  # there are eight devices


def broken(**members):
    return type("Broken", (EulerLike,), members)


BROKEN = {
    "order": (
        dict(order=2),
        r"forwards in time `Broken` shows order 0\.\d+ instead of 2: errors \[.*\] with \(32, 64, 128\) steps",
    ),
    "direction": (
        dict(step=lambda self, field, t, h, y, memory: solvers.Step(y + jnp.abs(h) * field(t, y))),
        r"backwards in time `Broken` shows order -?0\.\d+ instead of 1",
    ),
    "dtype": (
        dict(step=lambda self, field, t, h, y, memory: solvers.Step(y.astype(jnp.float16))),
        r"must return `y1` like `y`, but the array is float16\[1\] instead of float64\[1\]",
    ),
    "step": (dict(step=lambda self, field, t, h, y, memory: y), r"must return a `sciml.solvers.Step`, but returns"),
    "memory": (
        dict(step=lambda self, field, t, h, y, memory: solvers.Step(y, memory=y)),
        r"must return `memory` like `init`",
    ),
    "error": (dict(has_error=True), r"`Broken.has_error` is True, but `step` returns no `error`"),
    "estimate": (
        dict(
            has_error=True,
            step=lambda self, field, t, h, y, memory: solvers.Step(y + h * field(t, y), 1e-8 * h * field(t, y)),
        ),
        r"misses the end by .* under `rtol=atol=0.001`, in \d+ steps: `error` underestimates the error",
    ),
    "gradient": (
        dict(step=lambda self, field, t, h, y, memory: solvers.Step(y + h * jax.lax.stop_gradient(field(t, y)))),
        r"the gradient of `Broken` through fixed steps differs from .* at .model.rate\[\]: 0.0 instead",
    ),
    "history": (
        dict(
            init=lambda self, field, t, y: field(t, y),
            step=lambda self, field, t, h, y, memory: solvers.Step(
                y + h * (1.5 * field(t, y) - 0.5 * memory), memory=field(t, y)
            ),
        ),
        r"the gradient .* needs `Traits\(history=True\)`",
    ),
    "dense": (
        dict(
            traits=solvers.Traits(dense=True),
            interpolate=lambda self, theta, h, y0, y1, dense: y0,
            step=lambda self, field, t, h, y, memory: solvers.Step(y + h * field(t + h / 2, y + h / 2 * field(t, y))),
            order=2,
        ),
        r"between the steps \(`interpolate`\) `Broken` shows order [01]\.\d+ instead of 2",
    ),
    "elementwise_dense without dense": (
        dict(traits=solvers.Traits(elementwise_dense=True)),
        "is True, but `dense` is not",
    ),
    "elementwise_dense of no polynomial": (
        dict(
            traits=solvers.Traits(dense=True, elementwise_dense=True),
            interpolate=lambda self, theta, h, y0, y1, dense: y0 + jnp.sqrt(theta) * (y1 - y0),
        ),
        "is True, but `interpolate` is not a polynomial",
    ),
    "elementwise_dense that mixes": (
        dict(
            traits=solvers.Traits(dense=True, elementwise_dense=True),
            interpolate=lambda self, theta, h, y0, y1, dense: y0 + theta * jnp.flip(y1 - y0),
        ),
        "is True, but `interpolate` mixes the numbers of a state",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_method_that_breaks_a_promise_is_told_so(what):
    members, message = BROKEN[what]
    with pytest.raises(AssertionError, match=message):
        verify.check_stepper(broken(**members)())


class Tabled(solvers.AbstractStepper):
    """A method with an array, by which nothing can be compiled once."""

    weight: jax.Array
    order = 1
    evaluations = 1
    has_error = False

    def step(self, field, t, h, y, memory):
        return solvers.Step(y + self.weight * h * field(t, y))


class Mark:
    """What equals nothing but itself."""


class Marked(solvers.AbstractStepper):
    """A method that no copy of it equals."""

    mark: Mark = eqx.field(static=True)
    order = 1
    evaluations = 1
    has_error = False

    def step(self, field, t, h, y, memory):
        return solvers.Step(y + h * field(t, y))


def test_methods_are_compared_by_value():
    with pytest.raises(TypeError, match="its field `weight` is an array, but the fields of a method must be numbers"):
        verify.check_stepper(Tabled(jnp.ones(())))
    with pytest.raises(AssertionError, match=r"`Marked` is compiled again for an equal instance.*compare by value"):
        verify.check_stepper(Marked(Mark()))


def test_what_runs_through_diffrax_is_no_stepper():
    with pytest.raises(TypeError, match="`ImplicitEuler` runs in diffrax's loop"):
        verify.check_stepper(diffrax.ImplicitEuler())


# --- adjoints


@pytest.mark.parametrize(
    "adjoint, options",
    [
        (sciml.adjoints.Checkpointed(), {"loops": ("steps", "saves", "adaptive")}),
        (sciml.adjoints.Direct(), {"loops": ("steps",), "forward": True}),
        (sciml.adjoints.Direct(), {"loops": ("adaptive",), "forward": True, "reverse": False}),
        (sciml.adjoints.Gauss(), {"loops": ("steps",), "rtol": 2e-3}),
        (sciml.adjoints.Reversible(), {"loops": ("saves",), "rtol": 2e-3}),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, sciml.adjoints.AbstractAdjoint) else "",
)
def test_adjoints_of_the_library_keep_their_promises(adjoint, options):
    verify.check_adjoint(adjoint, **options)


class Changed(sciml.adjoints.AbstractAdjoint):
    """Changes the result, or stops the derivatives by the initial state."""

    factor: float = eqx.field(static=True, default=1.0)
    stops: bool = eqx.field(static=True, default=False)

    def run(self, loop, y0, operands, differentiate_times):
        y0 = jax.lax.stop_gradient(y0) if self.stops else y0
        result = sciml.adjoints.Checkpointed().run(loop, y0, operands, differentiate_times)
        return result._replace(ys=jax.tree.map(lambda y: self.factor * y, result.ys))


@pytest.mark.parametrize(
    "adjoint, message",
    [
        (
            Changed(factor=1.01),
            r"sum over the solution by `Changed` with fixed steps differs from the one by `Checkpointed`",
        ),
        (
            Changed(stops=True),
            r"the gradient with `Changed` through fixed steps differs from .* at .y0\[0\]: 0.0 instead",
        ),
    ],
    ids=["result", "gradient"],
)
def test_an_adjoint_that_breaks_a_promise_is_told_so(adjoint, message):
    with pytest.raises(AssertionError, match=message):
        verify.check_adjoint(adjoint, loops=("steps",))


class Own(sciml.adjoints.AbstractAdjoint):
    """Returns the result of a function of the loop, the state and the operands."""

    returns: Callable = eqx.field(static=True)

    def run(self, loop, y0, operands, differentiate_times):
        return self.returns(loop, y0, operands)


@pytest.mark.parametrize("options", [{"dt": 0.1}, {}], ids=["steps", "adaptive"])
def test_a_custom_adjoint_is_told_how_to_run_a_loop(options):
    def solve(returns):
        return sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=1.0, adjoint=Own(returns), **options)

    with pytest.raises(TypeError, match=r"got arrays. In the `run` .*`sciml.adjoints.Direct\(\).run\(loop"):
        solve(lambda loop, y0, operands: loop.forward(y0, operands, None))
    with pytest.raises(TypeError, match=r"such as of `Direct\(\).run\(loop, y0, .*, but returns .*Tracer"):
        solve(lambda loop, y0, operands: y0)


def test_a_custom_adjoint_is_told_how_to_declare_its_support_of_events():
    options = dict(t0=0.0, t1=1.0, events=sciml.Schedule(jnp.array([0.5])))
    with pytest.raises(ValueError, match="If `Own` does support this, set `repeats_steps = True` in the class"):
        sciml.solve(lambda t, y, args: -y, jnp.ones(2), adjoint=Own(None), **options)
    with pytest.raises(ValueError, match=r"`adjoint=Reversible\(\)` does not support `events`.*`Gauss\(\)`\.$"):
        sciml.solve(lambda t, y, args: -y, jnp.ones(2), adjoint=sciml.adjoints.Reversible(), **options)


def test_checks_of_an_adjoint_that_there_are_not():
    with pytest.raises(ValueError, match=r"`loops` must be some of \('steps', 'saves', 'adaptive'\)"):
        verify.check_adjoint(sciml.adjoints.Direct(), loops=("scan",))
    with pytest.raises(ValueError, match="`reverse` and `forward` are both False"):
        verify.check_adjoint(sciml.adjoints.Direct(), reverse=False)


# --- models


def test_models_that_keep_their_promises():
    verify.check_model(
        lambda t, y, args: {"a": y["b"] * args, "b": -y["a"]}, {"a": jnp.ones(2), "b": jnp.ones(2)}, args=2.0
    )
    verify.check_model(lambda t, y, args: 1j * y * jnp.conj(y) * y, jnp.array([1.0 + 0.5j, -0.3j]))


@jax.custom_jvp
def halved(y):
    return y


halved.defjvp(lambda primals, tangents: (primals[0], 0.5 * tangents[0]))


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda t, y, args: (y, y), r"must return the structure of `y0`"),
        (lambda t, y, args: y[:1], r"must return the shapes of `y0`.* \(2,\), but its rate has shape \(1,\)"),
        (lambda t, y, args: y.astype(jnp.float16), r"must return the dtypes of `y0`.*its rate has float16"),
        (lambda t, y, args: jnp.log(-y), r"rates of `<lambda>` at `y0` are not finite: rates is \[nan nan\]"),
        (
            lambda t, y, args: halved(y),
            r"the state in forward mode is .* along a direction, but .* by finite",
        ),
    ],
    ids=["structure", "shape", "dtype", "finite", "derivative"],
)
def test_a_model_that_breaks_a_promise_is_told_so(model, message):
    with pytest.raises(AssertionError, match=message):
        verify.check_model(model, jnp.ones(2))


def test_a_parameter_that_is_named_in_the_message():
    class Wrong(eqx.Module):
        rate: jax.Array

        def __call__(self, t, y, args):
            return -jax.lax.stop_gradient(self.rate) * y

    with pytest.raises(AssertionError, match=r"the model \(`.rate`\) in forward mode is 0.0"):
        verify.check_model(Wrong(jnp.array(2.0)), jnp.ones(2))


class Spread(sciml.AbstractModel):
    """Diffusion between walls, with a source, whose stencil a test replaces."""

    laplacian: spatial.Laplacian
    form: Callable = eqx.field(static=True)
    source: Callable = eqx.field(static=True)

    def __call__(self, t, y, args):
        return self.laplacian(y) + jnp.asarray(self.source(t, args), y.dtype)

    def stencil(self, y):
        return self.form(self.laplacian, y)


def by_stencil(factor=1.0, source=lambda t, args: 0.0, **options):
    def form(laplacian, y):
        rest = {"boundary": laplacian.boundary} | options
        return stencil.StencilRates(lambda nb, _: factor * laplacian.cell(nb, "u"), ("u",), **rest)

    return Spread(spatial.Laplacian(spatial.Grid((8, 6)), spatial.Neumann(0.0)), form, source)


@pytest.mark.parametrize("y0", [jnp.zeros((8, 6)), jnp.linspace(0.0, 1.0, 48).reshape(8, 6)], ids=["uniform", "slope"])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"factor": 2.0}, r"the rate of 'u' by `Spread.stencil` differs from the rate by `Spread.__call__` at"),
        ({"boundary": None}, r"the rate of 'u' by `Spread.stencil` differs from the rate by `Spread.__call__` at"),
        ({"split": lambda y: (2 * y,)}, r"`join` of `split` of `Spread.stencil` differs from the state"),
    ],
    ids=["factor", "periodic", "split"],
)
def test_a_stencil_whose_rates_differ_from_the_rates_of_its_model(options, message, y0):
    with pytest.raises(AssertionError, match=message):
        verify.check_model(by_stencil(**options), y0)


@pytest.mark.parametrize(
    "source, message",
    [(lambda t, args: jnp.sin(t), "at another time"), (lambda t, args: args - 1.0, "with other `args`")],
    ids=["time", "args"],
)
def test_a_stencil_without_the_time_or_args_of_its_model(source, message):
    y0 = jnp.linspace(0.0, 1.0, 48).reshape(8, 6)
    with pytest.raises(AssertionError, match=rf"the rate by `Spread.__call__` {message} at"):
        verify.check_model(by_stencil(source=source), y0, args=1.0)


def test_stencils_that_agree_with_their_models():
    grid = spatial.Grid((8, 6))
    y0 = jnp.linspace(0.0, 1.0, 48).reshape(8, 6)
    verify.check_model(by_stencil(), y0)
    walls = {"x": spatial.Dirichlet(1.0), "y": spatial.Neumann(0.5)}
    verify.check_model(sciml.models.GrayScott(grid, walls), jnp.stack([y0, 1 - y0]))
    sound = sciml.models.Acoustic(grid)  # whose fields have a cell behind each wall
    verify.check_model(sound, sound.rest(y0))
    refused = by_stencil(boundary=spatial.Boundaries(grid, spatial.Dirichlet(lambda t, args: t)))
    verify.check_model(refused, y0)  # a kernel does not run it
