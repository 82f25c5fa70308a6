"""Neural networks in PEtab problems: layers, a network in each place, and the arrays of files."""

import sys
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import sciml
from sciml.models.networks._program import Block, FormulaProgram
from sciml.petab import _network
from tests.models.networks.test_sbml import ci, math, parameter, sbml

pytest.importorskip("petab.v2")
pytestmark = pytest.mark.x64


def network(*layers, inputs=("x",), name="net"):
    """A network of layers one after another, as YAML; a layer is its type and its options, or a function."""
    nodes = [dict(name=x, op="placeholder", target=x) for x in inputs]
    found, last = [], list(inputs)
    for number, (kind, options) in enumerate(layers):
        node = f"node{number}"
        if kind[0].islower():
            nodes.append(dict(name=node, op="call_function", target=kind, args=last, kwargs=options))
        else:
            found.append(dict(layer_id=f"layer{number}", layer_type=kind, args=options))
            nodes.append(dict(name=node, op="call_module", target=f"layer{number}", args=last))
        last = [node]
    nodes.append(dict(name="output", op="output", target="output", args=last))
    content = dict(nn_model_id=name, inputs=[dict(input_id=x) for x in inputs], layers=found, forward=nodes)
    return yaml.safe_dump(content)


def test_block():
    block = Block(lambda x: jnp.stack([x[0] * x[1], x[0] - x[1]]))
    formulas = {"c": ("+", "a", 1.0), "d": (block, 1, "c", "b"), "e": (block, 0, "c", "b"), "f": ("*", "e", "d")}
    program = FormulaProgram(["a", "b"], formulas)
    values = program(jnp.array([2.0, 5.0]))
    np.testing.assert_array_equal(values[program.slots(["d", "e", "f"])], [-2, 15, -30])
    assert values.size == program.size


def test_transposed_convolution():
    """It is the derivative of the convolution with the same arrays by its input."""
    options = dict(kernel_size=[3], stride=[2], padding=[1], groups=2, bias=False)
    text = network(("Conv1d", options | dict(in_channels=4, out_channels=6)))
    direct = _network.read_network(text, key=jax.random.key(0))
    back = _network.read_network(network(("ConvTranspose1d", options | dict(in_channels=6, out_channels=4))))
    back = eqx.tree_at(lambda n: n.parameters, back, direct.parameters)
    _, pull = jax.vjp(direct, jnp.zeros((4, 7)))
    y = jax.random.normal(jax.random.key(1), (6, 4))
    np.testing.assert_allclose(back(y), pull(y)[0], rtol=1e-12)


def test_poolings_and_norms():
    x = jnp.arange(6.0).reshape(1, 6)
    cases = {
        ("MaxPool1d", "kernel_size", 2): [1, 3, 5],
        ("AvgPool1d", "kernel_size", 3): [1, 4],
        ("AdaptiveAvgPool1d", "output_size", 4): [0.5, 1.5, 3.5, 4.5],
        ("AdaptiveMaxPool1d", "output_size", 4): [1, 2, 4, 5],
    }
    for (kind, option, size), right in cases.items():
        net = _network.read_network(network((kind, {option: size})))
        np.testing.assert_allclose(net(x)[0], right, err_msg=kind)
    norm = _network.read_network(network(("LayerNorm", dict(normalized_shape=[6]))), key=jax.random.key(0))
    np.testing.assert_allclose(norm(x)[0], (x[0] - 2.5) / np.sqrt(35 / 12 + 1e-5), rtol=1e-12)


@pytest.mark.parametrize(
    "text, message",
    [
        (network(("LSTM", {})), "the layer `layer0` has the type `LSTM`, which is not supported"),
        (network(("erfc", {})), "the function `erfc` of a network is not supported"),
        (network(("MaxPool1d", dict(kernel_size=2, ceil_mode=True))), "has `ceil_mode`"),
        ("a: 1\nb: 2", "must have `nn_model_id`"),
    ],
)
def test_refused_by_name(text, message):
    with pytest.raises(ValueError, match=message):
        _network.read_network(text)


MODEL = sbml(
    parameters=parameter("x", 1, "false") + parameter("rate", 1, "true"),
    rules=f'<rateRule variable="x">{math(ci("rate"))}</rateRule>',
)
TABLES = dict(
    # the weights of `inner` are the most specific ones: 0.2 or their own
    parameters="""parameterId lowerBound upperBound nominalValue estimate priorDistribution priorParameters
        dose 0 10 1.5 true - -
        inner_all -inf inf 0.2 true normal 0;2
        inner_slope -inf inf -0.7 true - -
        inner_bias -inf inf 0.3 false - -
        start_all -inf inf array true - -""",
    mapping="""petabEntityId modelEntityId
        inner_in inner.inputs[0][0]
        inner_rate inner.outputs[0][0]
        inner_seen inner.outputs[0][1]
        inner_all inner.parameters
        inner_slope inner.parameters[layer0].weight[0,0]
        inner_bias inner.parameters[layer0].bias[0]
        start_in start.inputs[0][0]
        start_array start.inputs[1]
        start_out start.outputs[0][0]
        start_all start.parameters""",
    hybridization="""targetId targetValue
        inner_in 2*x
        rate inner_rate
        start_array array
        x start_out""",
    conditions="""conditionId targetId targetValue
        one start_in dose
        two start_in 3""",
    experiments="""experimentId time conditionId
        e1 0 one
        e2 0 two""",
    measurements="""observableId experimentId time measurement
        o e1 1.0 2.0
        o e2 2.0 1.0""",
    observables="""observableId observableFormula noiseFormula noiseDistribution
        o inner_seen+1 0.5 normal""",
)
YAML = """format_version: 2.0.0
model_files: {model: {language: sbml, location: model.xml}}
extensions:
  sciml:
    version: 0.1.0
    required: true
    array_files: [arrays.hdf5]
    hybridization_files: [hybridization.tsv]
    neural_networks:
      inner: {location: inner.yaml, format: YAML, pre_initialization: false}
      start: {location: start.yaml, format: YAML, pre_initialization: true}
"""
ARRAYS = dict(
    metadata=dict(pytorch_format=np.array(True)),
    inputs=dict(start_array={"one": np.array([1.0, 2.0]), "two": np.array([3.0, 4.0])}),
    parameters=dict(start=dict(layer1=dict(weight=np.array([[0.5, 0.1, 0.2]])))),
)


class Arrays(dict):
    """A file of arrays as h5py opens it, without one."""

    def __init__(self, path, mode):
        super().__init__(ARRAYS)

    __enter__ = lambda self: self  # noqa: E731
    __exit__ = lambda self, *_: None  # noqa: E731


def written(folder):
    for name, text in TABLES.items():
        rows = [["" if cell == "-" else cell for cell in row.split()] for row in text.splitlines()]
        (folder / f"{name}.tsv").write_text("\n".join(map("\t".join, rows)) + "\n")
    (folder / "model.xml").write_text(MODEL)
    inner = network(("Linear", dict(in_features=1, out_features=2)), name="inner")
    start = network(("cat", {}), ("Linear", dict(in_features=3, out_features=1, bias=False)), inputs=("p", "q"))
    start = start.replace("- p\n  - q", "- - p\n    - q").replace("nn_model_id: net", "nn_model_id: start")
    (folder / "inner.yaml").write_text(inner)
    (folder / "start.yaml").write_text(start)
    keys = [f"{name.removesuffix('s')}_files: [{name}.tsv]\n" for name in TABLES if name != "hybridization"]
    (folder / "problem.yaml").write_text(YAML + "".join(keys))
    return folder / "problem.yaml"


def exact(p):
    """The predictions: `x` starts at `start`, and its rate is linear in it."""
    a, b = 2 * p["inner.parameters[layer0].weight[0,0]"], p["inner.parameters[layer0].bias[0]"]
    weights = jnp.stack([p[f"start.parameters[layer1].weight[0,{i}]"] for i in range(3)])
    ends = []
    for first, array, t in ((p["dose"], [1.0, 2.0], 1.0), (3.0, [3.0, 4.0], 2.0)):
        x0 = weights @ jnp.array([first, *array])
        x = (x0 + b / a) * jnp.exp(a * t) - b / a
        seen = p["inner.parameters[layer0].weight[1,0]"] * 2 * x + p["inner.parameters[layer0].bias[1]"]
        ends.append(seen + 1)
    return jnp.stack(ends)


def test_problem(tmp_path, monkeypatch):
    """A network in the rate and in the observable, one at the start with arrays of conditions, and their priors."""
    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=Arrays))
    problem = sciml.petab.read_petab(written(tmp_path))
    x = problem.nominal
    values = problem.parameters(x)
    assert values["inner.parameters[layer0].weight[0,0]"] == -0.7 and values["inner.parameters[layer0].bias[1]"] == 0.2
    assert len(problem.names) == 1 + 3 + 3 and "inner.parameters[layer0].bias[0]" not in problem.names

    def density(x):
        predicted, p = exact(problem.parameters(x)), problem.parameters(x)
        prior = jax.scipy.stats.norm.logpdf
        own = [p["inner.parameters[layer0].weight[1,0]"], p["inner.parameters[layer0].bias[1]"]]
        priors = prior(jnp.stack(own), 0, 2).sum() - jnp.log(10.0)
        return prior(problem.data, predicted, 0.5).sum() + priors

    @jax.jit
    def both(x):
        return problem.predict(x)[0], jax.value_and_grad(problem.log_posterior)(x), jax.value_and_grad(density)(x)

    predicted, found, right = both(x)
    np.testing.assert_allclose(predicted, exact(values), rtol=1e-6)
    np.testing.assert_allclose(found[0], right[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], right[1], rtol=1e-4)
    nets = problem.networks(x)
    np.testing.assert_array_equal(nets["start"].parameters["layer1"]["weight"], [[0.5, 0.1, 0.2]])
    np.testing.assert_allclose(nets["inner"](jnp.ones(1)), [-0.4, 0.4])
    drawn = problem.draw(jax.random.key(0), 5)
    assert np.ptp(drawn[:, problem.names.index("start.parameters[layer1].weight[0,1]")]) < 2 / np.sqrt(3)


def test_arrays_need_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"require h5py: `pip install 'sciml-jax\[sbml\]'`"):
        sciml.petab.read_petab(written(tmp_path))


def test_arrays_of_a_file(tmp_path):
    h5py = pytest.importorskip("h5py")

    def write(group, content):
        for name, value in content.items():
            if isinstance(value, dict):
                write(group.create_group(name), value)
            else:
                group.create_dataset(name, data=value)

    with h5py.File(tmp_path / "arrays.hdf5", "w") as file:
        write(file, ARRAYS)
    found = _network.read_arrays(tmp_path / "arrays.hdf5")
    assert jax.tree.structure(found) == jax.tree.structure({k: x for k, x in ARRAYS.items() if k != "metadata"})
    np.testing.assert_array_equal(found["inputs"]["start_array"]["two"], [3.0, 4.0])
    text = network(("Linear", dict(in_features=1, out_features=1)), ("Linear", dict(in_features=3, out_features=1)))
    with pytest.raises(ValueError, match="do not have `parameters/net/layer0/weight`"):
        _network.read_network(text, arrays=tmp_path / "arrays.hdf5")
    start = network(("cat", {}), ("Linear", dict(in_features=3, out_features=1, bias=False)), name="start")
    net = _network.read_network(start, arrays=tmp_path / "arrays.hdf5")
    np.testing.assert_array_equal(net.parameters["layer1"]["weight"], [[0.5, 0.1, 0.2]])


def test_format_of_another_framework(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=Arrays))
    path = written(tmp_path)
    path.write_text(path.read_text().replace("location: inner.yaml, format: YAML", "location: a.py, format: equinox"))
    with pytest.raises(ValueError, match=r"pass it as an Equinox module, `networks={'inner': module}`"):
        sciml.petab.read_petab(path)
    with pytest.raises(ValueError, match="`networks` has other, but the problem inner, start"):
        sciml.petab.read_petab(path, networks={"other": None})
