"""A run whose code changed is refused, wherever the change is; a run of the same code goes on."""

import importlib
import os
import pathlib
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml import _digests, parallel, training
from sciml.runs import WallTime, iterate
from sciml.stores import StoreError, _fingerprint as _sources
from sciml.stores._fingerprint import program

pytestmark = pytest.mark.x64

MODULES = {
    "deep": """
        FACTOR = 2.0
        def scale(y):
            return FACTOR * y
    """,
    "helper": """
        import functools
        import equinox as eqx
        import jax
        import deep
        table = {"slow": 0.1}
        def rate(y, by=1.0):
            return -by * table["slow"] * y
        def nested(y):
            return deep.scale(y)
        def twice(f):
            @functools.wraps(f)
            def wrapped(y):
                return f(f(y))
            return wrapped
        class Layer(eqx.Module):
            bias: float = eqx.field(static=True, default=0.5)
            def __call__(self, y):
                return y + self.bias
            @staticmethod
            def law(y):
                return y**2
        @jax.jit
        def jitted(y):
            return y + 1
    """,
    "model": """
        import functools
        import jax
        import helper
        functions = {
            "plain": lambda y: helper.rate(y),
            "local": lambda y: __import__("importlib").import_module("helper").rate(y),
            "attribute": lambda y: getattr(helper, "ra" + "te")(y),
            "nested": lambda y: helper.nested(y),
            "partial": functools.partial(helper.rate, by=3.0),
            "decorated": helper.twice(lambda y: y + 1),
            "module": helper.Layer(),
            "method": lambda y: helper.Layer.law(y),
            "jitted": lambda y: helper.jitted(y),
        }
        def step(name):
            return lambda y: functions[name](y)
    """,
}

CHANGES = {
    "constant of a helper of a helper": ("nested", "deep", "2.0", "3.0"),
    "function of a helper": ("plain", "helper", "-by", "by"),
    "function that is imported within": ("local", "helper", "-by", "by"),
    "function that is found by its name": ("attribute", "helper", "-by", "by"),
    "value in a table": ("plain", "helper", "0.1", "0.5"),
    "default argument": ("plain", "helper", "by=1.0", "by=2.0"),
    "argument of a partial": ("partial", "model", "3.0", "4.0"),
    "decorator": ("decorated", "helper", "f(f(y))", "f(y)"),
    "decorated function": ("decorated", "model", "y + 1", "y - 1"),
    "static field": ("module", "helper", "0.5", "0.25"),
    "method": ("module", "helper", "y + self", "y - self"),
    "static method": ("method", "helper", "y**2", "y**3"),
    "function that is compiled by itself": ("jitted", "helper", "y + 1", "y + 2"),
}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Returns a function that loads the modules again, with a change in one of them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(name="", old="", new=""):
        for module, text in MODULES.items():
            assert module != name or old in text
            changed = text.replace(old, new, 1) if module == name else text
            (tmp_path / f"{module}.py").write_text(textwrap.dedent(changed))
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        return importlib.import_module("model")

    yield load
    for module in MODULES:
        sys.modules.pop(module, None)


def steps(step, folder, **options):
    return iterate(step, jnp.ones(2), 3, save_every=1, segment_steps=1, store=folder, progress=False, **options)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_is_refused(tmp_path, modules, change):
    name, *edit = CHANGES[change]
    first = steps(modules().step(name), tmp_path / "run", stop=WallTime(0.0))
    assert not first.finished
    changed = modules(*edit)
    with pytest.raises(StoreError, match=f"(?s)`(step|program)`: .*the file of module `{edit[0]}`"):
        steps(changed.step(name), tmp_path / "run")
    run = steps(modules().step(name), tmp_path / "run")  # loaded again, and the same
    assert run.finished and run.values.tobytes() == steps(modules().step(name), None).values.tobytes()


def test_a_resumed_simulation_is_of_one_model(tmp_path, modules):
    """The frames of two models came out as one run: 1, .905, .819, then those of another rate."""
    options = dict(t0=0.0, t1=6.0, dt=0.1, save_every=1.0, segment_steps=20, progress=False)

    def run(model, **more):
        field = lambda t, y, args: model.helper.rate(y)  # noqa: E731
        return sciml.simulate(field, jnp.ones(1), store=tmp_path / "run", **options | more)

    assert len(run(modules(), stop=WallTime(0.0))) == 3
    with pytest.raises(StoreError, match="(?s)`model`: .*the file of module `helper`"):
        run(modules("helper", "-by", "5 * by"))
    np.testing.assert_allclose(run(modules()).values[:, 0], np.exp(-0.1 * np.arange(7)), rtol=1e-6)


SOLVE = dict(
    events=lambda h: sciml.Event(lambda t, y, args: y[0] + h.rate(y)[0] - 0.1),
    output=lambda h: lambda t, y, args: h.rate(y),
    stop=lambda h: lambda t, y, args: h.rate(y)[0] > 5,
    domain=lambda h: lambda y: jnp.all(h.rate(y) < 5),
)


@pytest.mark.parametrize("name", SOLVE)
def test_changed_functions_of_a_simulation(tmp_path, modules, name):
    options = dict(t0=0.0, t1=1.0, dt=0.25, save_every=0.5, progress=False, store=tmp_path / "run")

    def run(model):
        return sciml.simulate(lambda t, y, args: -y, jnp.ones(1), **options, **{name: SOLVE[name](model.helper)})

    assert run(modules()).finished
    with pytest.raises(StoreError, match="the file of module `helper`"):
        run(modules("helper", "-by", "by"))


def test_a_package_of_another_version(tmp_path, modules, monkeypatch):
    """Code of installed packages counts by what is compiled of it, and the message names the version."""
    for module in (_digests, _sources):
        monkeypatch.setattr(module, "FOREIGN", (*_digests.FOREIGN, str(tmp_path)))
    steps(modules("deep", "FACTOR", "__version__ = '1.0'; FACTOR").step("nested"), tmp_path / "run", stop=WallTime(0.0))
    harmless = modules("deep", "FACTOR = 2.0", "__version__ = '1.1'; FACTOR = 1.0 + 1.0")
    assert not steps(harmless.step("nested"), tmp_path / "run", stop=WallTime(0.0)).finished
    changed = modules("deep", "FACTOR = 2.0", "__version__ = '2.0'; FACTOR = 3.0")
    with pytest.raises(StoreError, match=r"(?s)`program`: the model, or .*`deep` \(1.0 before, 2.0 now\)"):
        steps(changed.step("nested"), tmp_path / "run")


def test_a_training_of_other_code(tmp_path, modules):
    def train(model, name="loss"):
        law = model.functions["attribute"]
        loss = lambda m, batch, key: jnp.sum((law(m) - 1) ** 2)  # noqa: E731
        return training.train(
            jnp.zeros(2), loss, steps=4, optimiser=optax.sgd(0.1), checkpoints=tmp_path / "run", progress=False
        )

    train(modules())
    with pytest.raises(StoreError, match="(?s)`program`: .*the file of module `helper`"):
        train(modules("helper", "-by", "by"))
    assert train(modules()).n_steps == 4


class Loader:
    """Gives batches of several shapes."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def test_a_training_with_a_loader_may_begin_with_a_batch_of_another_shape(tmp_path):
    def train(lengths, steps):
        data = [np.ones(n) for n in lengths]
        return training.train(
            jnp.zeros(()), lambda m, batch, key: jnp.sum((m - batch) ** 2), Loader(data), steps=steps,
            optimiser=optax.sgd(0.1), checkpoints=tmp_path / "run", progress=False,
        )  # fmt: skip

    train([2, 3], 2)
    assert train([3, 2], 4).n_steps == 4


def test_a_sweep_of_other_code(tmp_path, modules):
    x = np.arange(4.0)

    def sweep(fn):
        mesh = parallel.mesh(devices=jax.devices()[:1])
        return parallel.sweep(fn, x, store=tmp_path / "run", progress=False, block=4, mesh=mesh)

    sweep(modules().step("attribute"))
    with pytest.raises(StoreError, match="(?s)`function`: .*the file of module `helper`"):
        sweep(modules("helper", "-by", "by").step("attribute"))


def test_a_sweep_with_another_reduction_is_refused(tmp_path):
    def sweep(edges):
        return parallel.sweep(
            lambda x: x, np.arange(4.0), store=tmp_path / "run", progress=False, block=4,
            reduce=parallel.Histogram(edges), mesh=parallel.mesh(devices=jax.devices()[:1]),
        )  # fmt: skip

    sweep(np.linspace(0.0, 4.0, 5))
    with pytest.raises(StoreError, match="`function`"):
        sweep(np.linspace(-4.0, 4.0, 5))


def test_a_sweep_whose_callback_changed_is_refused(tmp_path):
    """A program calls Python by a number; the code behind it counts, too."""

    def sweep(factor):
        def fn(x):
            return jax.pure_callback(lambda x: np.asarray(factor * x), x, x, vmap_method="sequential")

        return parallel.sweep(
            fn, np.arange(2.0), store=tmp_path, progress=False, block=2,
            mesh=parallel.mesh(devices=jax.devices()[:1]),
        )  # fmt: skip

    assert sweep(2.0).values.tolist() == sweep(2.0).values.tolist() == [0.0, 2.0]
    with pytest.raises(StoreError, match="`function`"):
        sweep(3.0)


def test_a_spread_state_goes_on_over_another_number_of_devices(tmp_path):
    """The program is another one there, so that the code of its functions is what is compared."""

    def run(devices, rate=1.0, **options):
        layout = NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("x",)), P("x"))
        y0 = jax.device_put(jnp.arange(8.0), layout)
        given = dict(t0=0.0, t1=2.0, dt=0.1, save_every=0.5, segment_steps=5, store=tmp_path, progress=False)
        return sciml.simulate(lambda t, y, args: rate * (jnp.roll(y, 1) - y), y0, **given | options)

    first = run(4, stop=WallTime(0.0))
    assert not first.finished
    with pytest.raises(StoreError, match="`model`"):
        run(2, rate=2.0)
    assert run(2).finished


def test_a_program_is_known_without_names_and_addresses():
    text = 'module @jit_{} attributes {{mhlo.num_partitions = {} : i32}} {{ custom_call {{backend_config = "{}"}} {} }}'
    first = program(text.format("f", 1, 140641553172528, "add"))
    assert not first.differs(program(text.format("g", 1, 140716015667248, "add")))
    assert first.differs(program(text.format("f", 1, 140641553172528, "multiply")))
    assert not first.differs(program(text.format("f", 4, 140641553172528, "multiply")))
    assert first.differs(program(text.format("f", 1, 140641553172528, "add"), np.ones(1)))


SCRIPT = """
    import sys
    import equinox as eqx, jax, jax.numpy as jnp, numpy as np, sciml
    from sciml.runs import WallTime
    weights = {"b": np.arange(2.0), "a": {1.0, 2.0, 3.0}}
    class Model(eqx.Module):
        net: eqx.nn.MLP
        def __call__(self, t, y, args):
            return jnp.tanh(self.net(y)) - weights["b"] + len(weights["a"])
    model = Model(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)))
    run = sciml.simulate(
        model, jnp.ones(2), t0=0.0, t1=2.0, rtol=1e-3, save_every=0.5, segment_steps=2, store=sys.argv[1],
        progress=False, stop=WallTime(0.0), events=sciml.Event(lambda t, y, args: y[0] - 9.0),
    )
    print(len(run), run.finished)
"""


def test_the_same_code_goes_on_in_another_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    said = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(pathlib.Path(sciml.__file__).parents[1])}
        command = [sys.executable, str(script), str(tmp_path / "run")]
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert out.returncode == 0, out.stderr
        said.append(out.stdout.split())
    assert int(said[0][0]) < int(said[1][0])
