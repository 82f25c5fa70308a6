"""What messages say of PyTrees: containers, keys, dtypes and shapes, and where two of them first differ."""

import ast
import collections
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inference
from sciml._structure_words import first_difference, structure_words
from sciml.training import experiments, gauss_newton_product

SRC = pathlib.Path(sciml.__file__).parent
X = np.ones(3, np.float32)
State = collections.namedtuple("State", "q p")


class Module(eqx.Module):
    a: np.ndarray
    n: int = eqx.field(static=True, default=3)


@pytest.mark.parametrize(
    "tree, words",
    [
        (X, "float32[3]"),
        (np.float32(1), "float32[]"),
        (jax.ShapeDtypeStruct((2, 3), np.float32), "float32[2, 3]"),
        (1.0, "float"),
        (None, "None"),
        ((X,), "(float32[3],)"),
        ((X, None), "(float32[3], None)"),
        ({"x": X, "v": {"a": [X]}}, "{'v': {'a': [float32[3]]}, 'x': float32[3]}"),
        (State(X, X), "State(q=float32[3], p=float32[3])"),
        (Module(X), "Module(a=float32[3])"),
        ([X] * 9, "[" + 6 * "float32[3], " + "... 3 more]"),
        ([[[[[X]]]]], "[[[[...]]]]"),
        ({}, "{}"),
    ],
)
def test_words(tree, words):
    assert structure_words(tree) == words


@pytest.mark.parametrize(
    "wanted, got, said",
    [
        ({"x": X, "v": X}, {"x": X}, "`['v']`: it is missing"),
        ({"x": X}, {"x": X, "v": X}, "`['v']`: it was not expected"),
        ({"x": (X, X)}, {"x": [X, X]}, "`['x']`: [float32[3], float32[3]] instead of (float32[3], float32[3])"),
        ((X, X), (X, X[:2]), "`[1]`: float32[2] instead of float32[3]"),
        (State(X, X), State(X, None), "`.p`: None instead of float32[3]"),
        ((Module(X),), (Module(X, 4),), "`[0]`: its fields that are not arrays differ"),
    ],
)
def test_first_difference(wanted, got, said):
    assert first_difference(wanted, got, arrays=True) == f" The first difference is at {said}."


def test_no_difference_is_told_at_the_top_or_of_equals():
    assert first_difference(X, (X,)) == first_difference((X, X), (X, X[:2])) == ""


# --- what users meet


def of_x_and_v(t, y, args):
    return {"x": y["v"], "v": -y["x"]}


Y0 = {"x": X, "v": X}
Q = np.ones(3, np.float32)


class OtherEnd(sciml.solvers.AbstractStepper):
    """A method that loses a part of the state."""

    order = 1
    evaluations = 1
    has_error = False

    def step(self, field, t, h, y, memory):
        return sciml.solvers.Step((y["x"],))


class TwoLinearParts(sciml.AbstractSemilinear):
    def transform(self, y):
        return y

    def inverse(self, modes):
        return modes

    def linear(self, args):
        return (jnp.ones(3), jnp.ones(3))

    def rest(self, t, modes, args):
        return modes

    def __call__(self, t, y, args):
        return y


class Spring(sciml.AbstractSecondOrder):
    def acceleration(self, t, q, args):
        return -q


def solve(model=of_x_and_v, y0=Y0, **options):
    return sciml.solve(model, y0, t0=0.0, t1=1.0, **options)


def stochastic():
    noisy = sciml.Stochastic(of_x_and_v, lambda t, y, args: {"x": y["x"]})
    return solve(noisy, key=jax.random.key(0), solver=diffrax.Euler(), dt=0.1)


def density():
    def observe(model):
        return {"seen": inference.Normal(model, 1.0)}

    return inference.log_density(
        jnp.ones(2), observe, {"lynx": jnp.ones(2)}, [(lambda m: m, inference.Normal(0.0, 1.0))]
    )


def shooting():
    records = [{"x": np.ones((4, 2))}, {"y": np.ones((4, 2))}]
    return experiments([np.arange(4.0)] * 2, records)


CASES = {
    "field": (lambda: solve(lambda t, y, args: {"x": y["v"]}), r"\{'v': float32\[3\], 'x': float32\[3\]\}, but it ret"),
    "field returns a tuple": (lambda: solve(lambda t, y, args: (y, y), X), r"float32\[3\], but it .*jnp.stack"),
    "atol": (lambda: solve(atol={"x": 1e-3}), r"but is \{'x': float\}. The first difference is at `\['v'\]`"),
    "positive": (lambda: solve(positive={"x": True}), r"but is \{'x': bool\}. The first difference is at `\['v'\]`"),
    "update": (
        lambda: solve(events=sciml.Event(lambda t, y, args: y["x"][0], lambda t, y, args: {**y, "v": y["v"][:2]})),
        r"The first difference is at `\['v'\]`: float32\[2\] instead of float32\[3\]",
    ),
    "step": (lambda: solve(solver=OtherEnd(), dt=0.1), r"must return `y1` .*but returns \(float32\[3\],\)"),
    "diffusion": (stochastic, r"but it returned \{'x': float32\[3\]\}. The first difference is at `\['v'\]`"),
    "second order": (
        lambda: solve(Spring(), solver=sciml.solvers.VelocityVerlet(), dt=0.1),
        r"two PyTrees of the same structure.*, but `y0` is \{'v': float32\[3\]",
    ),
    "linear": (
        lambda: solve(TwoLinearParts(), X, solver=sciml.solvers.ETDRK(order=4), dt=0.1),
        r"structure of the modes, float32\[3\], but is \(float..\[3\], float..\[3\]\)",
    ),
    "observe": (density, r"array of `data`, \{'lynx': float.*\[2\]\}, but returned \{'seen': Normal"),
    "precision": (
        lambda: gauss_newton_product(lambda p: (p, p, p), X, X, precision=(1.0, 2.0)),
        r"\(float32\[3\], float32\[3\], float32\[3\]\), but is \(float, float\). The first difference is at `\[2\]`",
    ),
    "records": (shooting, r"one structure, \{'x': .*but record 1 is \{'y': "),
}


@pytest.mark.parametrize("name", CASES)
def test_messages_say_structures_in_words(name):
    call, message = CASES[name]
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    assert "PyTreeDef" not in str(caught.value)


def _writes_a_structure(node):
    """Whether a piece of a message is what JAX calls a structure, which prints as `PyTreeDef(...)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("structure", "tree_structure")
    return isinstance(node, ast.Name) and node.id in ("treedef", "structure")


def test_no_message_writes_a_structure_as_jax_does():
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FormattedValue):
                assert not _writes_a_structure(node.value), f"{path.name}:{node.lineno}: use `structure_words`"
