"""Methods of one's own that are not what they should be: said where the solve is traced, or as a status."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import AbstractStepper, Step


class Heun(AbstractStepper):
    order = 2
    evaluations = 2
    has_error = True

    def step(self, field, t, h, y, memory):
        first = field(t, y)
        second = field(t + h, y + h * first)
        error = h / 2 * (second - first)
        return self.made(t, h, Step(y + h * first + error, error))

    def made(self, t, h, step):
        return step


def solve(solver, **options):
    return sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=1.0, solver=solver, throw=False, **options)


@pytest.mark.parametrize("options", [dict(dt=0.1), dict(rtol=1e-4)], ids=["fixed", "adaptive"])
@pytest.mark.parametrize(
    "change, message",
    [
        (lambda step: step.y1, r"`Other.step` must return a `sciml.solvers.Step`, but returns .*Tracer"),
        (
            lambda step: step._replace(y1=step.y1[0]),
            r"`y1` with the structure, shapes and dtypes of `y`, float\d\d\[2\], but returns float\d\d\[\]",
        ),
        (lambda step: step._replace(y1=(step.y1,)), "`y1` with the structure"),
    ],
    ids=["no step", "another shape", "another structure"],
)
def test_what_a_step_returns(change, message, options):
    class Other(Heun):
        def made(self, t, h, step):
            return change(step)

    with pytest.raises(TypeError, match=message):
        solve(Other(), **options)


def test_an_error_that_is_missing():
    class Other(Heun):
        def made(self, t, h, step):
            return Step(step.y1)

    with pytest.raises(TypeError, match="`Other` has `has_error = True`, but its `step` returns no `error`"):
        solve(Other(), rtol=1e-4)


def test_dense_output_without_its_methods():
    class Other(Heun):
        traits = sciml.solvers.Traits(dense=True)

    with pytest.raises(TypeError, match="`Traits\\(dense=True\\)`, so it needs a method `interpolate`"):
        solve(Other())


def test_members_that_the_loops_do_not_read_are_refused():
    with pytest.raises(TypeError, match=r"`Other.dense` is a trait: write `traits = .*Traits\(dense=...\)`"):
        type("Other", (Heun,), {"dense": True})
    with pytest.raises(TypeError, match=r"`Other.longest` is read from `limits`: .*super\(\).limits._replace"):
        type("Other", (Heun,), {"longest": lambda self, memory: 0.1})


@pytest.mark.parametrize("adjoint", [sciml.adjoints.Gauss(), sciml.adjoints.Interpolating()])
def test_continuous_adjoints_need_dense_output(adjoint):
    with pytest.raises(TypeError, match=r"requires dense output, but Heun does not interpolate"):
        solve(Heun(), adjoint=adjoint)


def test_steps_whose_system_has_no_solution():
    class Never(Heun):
        def made(self, t, h, step):
            return step._replace(solvable=jnp.asarray(False))

    class Short(Heun):
        def made(self, t, h, step):
            return step._replace(solvable=jnp.abs(h) < 0.02)

    singular, nonfinite = int(sciml.Status.singular), int(sciml.Status.nonfinite)
    assert solve(Never()).status == singular and solve(Never(), dt=0.1).status == nonfinite
    assert solve(Short(), dt=0.1).status == nonfinite
    sol = solve(Short(), rtol=1e-2)
    assert sol.status == 0 and sol.stats.rejected > 0 and sol.stats.accepted >= 50
    np.testing.assert_allclose(sol.ys[-1], np.exp(-1.0), rtol=1e-3)
    statuses = jax.vmap(lambda rtol: solve(Never(), rtol=rtol).status)(jnp.array([1e-2, 1e-3]))
    assert statuses.tolist() == [singular] * 2


def test_an_adjoint_that_returns_no_result():
    class States(sciml.adjoints.AbstractAdjoint):
        def run(self, loop, y0, operands, differentiate_times):
            return sciml.adjoints.Direct().run(loop, y0, operands, differentiate_times).ys

    with pytest.raises(TypeError, match="`States.run` must return the result of a loop"):
        solve(Heun(), adjoint=States())


class ExponentialEuler(AbstractStepper):
    k: float
    order = 1
    evaluations = 1
    has_error = False

    def step(self, field, t, h, y, memory):
        return Step(y + (1 - jnp.exp(-self.k * h)) / self.k * field(t, y))


class StaticExponentialEuler(ExponentialEuler):
    k: float = eqx.field(static=True)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize("kind", [ExponentialEuler, StaticExponentialEuler])
def test_fields_of_methods_are_constants(kind):
    """Derivatives with respect to them would be 0; afterwards all is as before."""

    def end(k):
        return solve(kind(k), dt=0.1).ys[-1, 0]

    before = end(3.0)
    for transform in (jax.grad, jax.jit, lambda f: lambda k: jax.jvp(f, (k,), (1.0,))):
        with pytest.raises(TypeError, match="its field `k` is traced, but the fields of a method must be numbers"):
            transform(end)(3.0)
    with pytest.raises(TypeError, match="its field `k` is traced"):
        jax.vmap(end)(jnp.ones(3))
    with pytest.raises(TypeError, match="its field `k` is an array"):
        end(np.asarray(3.0))
    assert end(3.0) == before


@pytest.mark.parametrize("options", [dict(dt=0.1), dict(rtol=1e-4)], ids=["fixed", "adaptive"])
def test_memory_without_a_beginning(options):
    class Other(Heun):
        def made(self, t, h, step):
            return step._replace(memory=step.y1)

    with pytest.raises(TypeError, match="`Other.step` must return `memory` with the structure, shapes and dtypes of"):
        solve(Other(), **options)
