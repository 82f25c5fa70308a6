"""Functions that are created anew in every call, and programs that are found again for them."""

import collections
import contextlib
import contextvars
import functools
import gc
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sciml
from sciml import _same_code
from sciml._choices import choices
from sciml._same_code import first_of_same_code

RATE = 0.5


class Count:
    def __init__(self):
        self.compiled = 0

    def __call__(self, event, duration, **_):
        self.compiled += event == "/jax/core/compile/backend_compile_duration"


COUNT = Count()
jax.monitoring.register_event_duration_secs_listener(COUNT)


@contextlib.contextmanager
def compiles(most: int):
    before = COUNT.compiled
    yield
    assert COUNT.compiled - before <= most


def same(f, g) -> bool:
    return first_of_same_code(f) is first_of_same_code(g)


def test_functions_of_the_same_code_are_the_same():
    def make(rate, factor=1.0):
        return lambda t, y, args: -rate * factor * jnp.sin(y)

    assert same(make(0.5), make(0.5))
    assert not same(make(0.5), make(0.7))
    assert not same(make(1), make(1.0))  # which trace to other programs
    assert not same(make(0.5), lambda t, y, args: -0.5 * y)
    assert same(make(jnp.ones(3)), make(jnp.ones(3))) and not same(make(jnp.ones(3)), make(jnp.zeros(3)))
    assert not same(make(jnp.ones(3)), make(np.ones(3))) and not same(make(jnp.ones(())), make(jnp.asarray(1.0)))
    assert same(make(jax.random.key(1)), make(jax.random.key(1)))
    assert not same(make(jax.random.key(1)), make(jax.random.key(2)))
    large = jnp.zeros(choices().calls.compared_bytes_at_most)
    assert same(make(large), make(large)) and not same(make(large), make(large + 0))  # these by identity
    assert same(make(np.ones(3)), make(np.ones(3))) and not same(make(np.ones(3)), make(np.zeros(3)))
    assert same(functools.partial(make(0.5), 0.0), functools.partial(make(0.5), 0.0))
    assert not same(functools.partial(make(0.5), 0.0), functools.partial(make(0.5), 1.0))
    assert same(make(make(0.5)), make(make(0.5))) and not same(make(make(0.5)), make(make(0.7)))


class Decay:
    powers = (1, 2)

    def __init__(self, rate):
        self.rate = rate

    def field(self, t, y, args):
        return -self.rate * y ** self.powers[0]

    def other(self, t, y, args):
        return self.rate * y


def test_bound_methods_are_compared_by_their_objects(monkeypatch):
    assert same(Decay(0.5).field, Decay(0.5).field) and not same(Decay(0.5).field, Decay(0.7).field)
    assert not same(Decay(0.5).field, Decay(0.5).other)
    assert same(Decay(jnp.ones(2)).field, Decay(jnp.ones(2)).field)
    one = Decay(0.5)
    assert same(one.field, one.field) and not same(one.field, one.other)
    first = first_of_same_code(one.field)
    monkeypatch.setattr(Decay, "powers", (2, 1))
    assert not same(first, Decay(0.5).field)


def test_rules_of_derivatives_count():
    def with_rule(slope):
        @jax.custom_jvp
        def negative(x):
            return -x

        negative.defjvp(lambda primals, tangents: (negative(*primals), -slope * tangents[0]))
        return lambda t, y, args: negative(y)

    def with_reverse_rule(slope):
        @jax.custom_vjp
        def negative(x):
            return -x

        negative.defvjp(lambda x: (negative(x), None), lambda _, bar: (-slope * bar,))
        return lambda t, y, args: negative(y)

    for make in (with_rule, with_reverse_rule):
        assert same(make(1.0), make(1.0)) and not same(make(1.0), make(3.0))
        for slope in (1.0, 3.0):
            end = lambda y0, f=make(slope): sciml.solve(f, y0, t0=0.0, t1=1.0, dt=0.02).ys[0]  # noqa: E731
            np.testing.assert_allclose(jax.grad(end)(1.0), np.exp(-slope), rtol=1e-3)


def test_what_a_function_reads_of_its_module_counts(monkeypatch):
    def make():
        return lambda t, y, args: -RATE * y

    first = make()
    assert same(first, make())
    monkeypatch.setitem(globals(), "RATE", 0.7)
    assert not same(first, make())


def test_what_cannot_be_compared_stands_for_itself():
    def make(x):
        return lambda t, y, args: x

    large = np.zeros(choices().calls.compared_bytes_at_most)
    f, g = make(large), make(large)
    assert first_of_same_code(f) is f and first_of_same_code(g) is g
    jax.jit(lambda x: [first_of_same_code(make(x)), x][1])(1.0)  # a traced value
    f, g = (lambda t, y, args: getattr(y, args)), (lambda t, y, args: getattr(y, args))  # noqa: E731
    assert first_of_same_code(f) is f and first_of_same_code(g) is g
    changed = np.ones(3)
    f = make(changed)
    assert first_of_same_code(f) is f
    changed[0] = 2.0
    assert not same(f, make(changed))


class Labelled(float):
    pass


def attribute_of_a_function():
    def rate(y):
        return rate.factor * y

    rate.factor = 1.0
    return lambda: lambda t, y, args: rate(y), lambda: setattr(rate, "factor", 2.0)


def order_of_a_dictionary():
    rates = {"a": 1.0, "b": 2.0}
    return lambda: lambda t, y, args: list(rates.values())[0] * y, lambda: rates.update(a=rates.pop("a"))


def default_of_a_dictionary():
    rates = collections.defaultdict(lambda: 1.0)
    return lambda: lambda t, y, args: rates["a"] * y, lambda: setattr(rates, "default_factory", lambda: 2.0)


def class_of_a_tuple():
    held = [collections.namedtuple("Pair", "a b")(1.0, 2.0)]
    return lambda: lambda t, y, args: held[0].a * y, lambda: held.append(
        collections.namedtuple("Pair", "b a")(*held.pop())
    )


def attribute_of_a_number():
    rate = Labelled(1.0)
    return lambda: lambda t, y, args: rate.unit * y, lambda: None


def context_variable():
    rate = contextvars.ContextVar("rate", default=1.0)
    return lambda: lambda t, y, args: rate.get() * y, lambda: None


def random_numbers():
    return lambda: lambda t, y, args: np.random.normal() * y, lambda: None


def generator_of_random_numbers():
    rng = np.random.default_rng(0)
    return lambda: lambda t, y, args: rng.normal() * y, lambda: None


def environment():
    return lambda: lambda t, y, args: float(os.environ["RATE"]) * y, lambda: None


def file():
    return lambda: lambda t, y, args: np.loadtxt("rates.txt") * y, lambda: None


def a_list_that_is_written():
    calls = []
    return lambda: lambda t, y, args: calls.append(y), lambda: None


def start_of_an_object():
    rates = iter([1.0, 2.0])

    def make():
        rate = next(rates)

        class Held:
            def __init__(self):
                self.rate = rate

        return lambda t, y, args: Held().rate * y

    return make, lambda: None


@pytest.mark.parametrize(
    "case",
    [
        attribute_of_a_function,
        order_of_a_dictionary,
        default_of_a_dictionary,
        class_of_a_tuple,
        attribute_of_a_number,
        context_variable,
        random_numbers,
        generator_of_random_numbers,
        environment,
        file,
        a_list_that_is_written,
        start_of_an_object,
    ],
)
def test_what_may_have_changed_since_is_not_shared(case):
    make, change = case()
    first = first_of_same_code(make())
    change()
    assert first_of_same_code(make()) is not first


def test_classes_of_equinox_are_shared():
    class Rates(eqx.Module):
        rate: jax.Array
        power: int = eqx.field(static=True)

    def make(power):
        held = Rates(jnp.ones(1), power)
        return lambda t, y, args: held.rate * y**held.power + Rates(y, 1).rate

    assert same(make(1), make(1)) and not same(make(1), make(2))


def test_functions_that_nobody_holds_are_forgotten():
    def make(x):
        return lambda t, y, args: x

    gc.collect()
    before = len(_same_code._first)
    for rate in range(100):
        first_of_same_code(make(rate))
    gc.collect()
    assert len(_same_code._first) <= before + 1


def solve_with_event(level):
    event = sciml.Event(lambda t, y, args: y[0] - level)
    return sciml.solve(lambda t, y, args: -y, jnp.ones(1), t0=0.0, t1=2.0, events=event).ts[-1]


def test_an_eager_solve_with_new_functions_is_compiled_once():
    first = solve_with_event(0.5)
    with compiles(0):
        again = solve_with_event(0.5)
    assert again == first
    np.testing.assert_allclose(solve_with_event(0.25), np.log(4.0), rtol=1e-3)


def fit(target):
    data = jnp.exp(-1.3 * jnp.arange(5.0)) + target
    return sciml.fit(jnp.array(1.0), lambda k, data: jnp.exp(-k * jnp.arange(5.0)) - data, data)


def steady(level):
    return sciml.steady_state(lambda t, y, args: level - y, jnp.zeros(1)).ys


def boundary(slope):
    mesh = jnp.linspace(0.0, 1.0, 5)
    ends = lambda a, b, args: jnp.array([a[0], b[0] - slope])  # noqa: E731
    return sciml.solve_bvp(lambda t, y, args: jnp.array([y[1], 0.0]), ends, mesh, jnp.zeros((5, 2))).ys


def train(rate):
    loss = lambda model, batch, key: jnp.mean((model * batch - rate) ** 2)  # noqa: E731
    return sciml.training.train(
        jnp.array(0.5), loss, jnp.ones((4, 1)), optimiser=optax.sgd(0.1), steps=2, progress=False
    )


def sweep(rate):
    run = lambda y0: sciml.solve(lambda t, y, args: -rate * y, y0, t0=0.0, t1=1.0)  # noqa: E731
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("member",))
    return sciml.parallel.sweep(run, np.ones((4, 1)), output=lambda sol: sol.ys[-1], mesh=mesh, progress=False).values


def density(rate):
    priors = [(lambda m: m["rate"], sciml.inference.Gamma(2.0, rate))]
    observe = lambda m: sciml.inference.Normal(m["rate"], rate)  # noqa: E731
    return sciml.inference.log_density({"rate": jnp.array(2.0)}, observe, np.array([1.0, 3.0]), priors)


def laplace(rate):
    return density(rate).laplace().covariance


def chains(rate):
    return sciml.inference.nuts(density(rate), jax.random.key(0), chains=2, draws=5, warmup=5).positions


def profile(rate):
    return sciml.inference.profile_likelihood(density(rate)).intervals


def population(rate):
    observe = lambda m, effect, subject: sciml.inference.Normal(m["typical"] + effect, rate)  # noqa: E731
    effects = lambda m: sciml.inference.Normal(0.0, rate)  # noqa: E731
    priors = [(lambda m: m["typical"], sciml.inference.Improper())]
    levels, model = np.linspace(2.0, 4.0, 6).reshape(3, 2), {"typical": jnp.array(2.0)}
    found = sciml.inference.hierarchical(model, observe, levels, priors, effects=effects)
    return found.modes(model), found.marginal.laplace().covariance


@pytest.mark.parametrize("call", [fit, steady, boundary, train, sweep, laplace, chains, profile, population])
def test_a_second_call_compiles_nothing(call):
    call(0.5)
    call(0.5)  # what is compiled on the way, operations of NumPy's kind among it
    with compiles(0):
        call(0.5)
