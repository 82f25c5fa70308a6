"""Programs are read without a fallback that nobody knows of.

Lanes, patterns of Jacobians, single entries of Jacobians and kernels of stencils read the programs of models. None of
them fails on a primitive that it has no rule for: it is slower then. So these tests fail where a release of JAX renames
a primitive or writes a function by another one. They trace, and compile nothing.
"""

import ast
import gc
import importlib
import pathlib

import jax
import jax.extend as jex
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

import sciml
from sciml import models
from sciml._jax._shards import traced_on_no_mesh
from sciml._jax.programs import _names
from sciml.inspect._program_facts import facts_of
from sciml.kernels._lanes import _batched_primitives, _elementwise, _interpret, fallbacks
from sciml.kernels._lanes._data_movement import MOVEMENTS
from sciml.kernels._lowered import LOWERED
from sciml.kernels.stencil import NotForKernelsError, StencilUpdate
from sciml.kernels.stencil.mosaic._primitives import missing
from sciml.solvers.linear import _dependencies, _entries
from tests import registry_models, registry_pdes
from tests.registry_solvers import METHODS

SRC = pathlib.Path(sciml.__file__).parent

BY_KERNEL = ("Euler", "CompressibleNavierStokes", "ShallowWater", "Transport")
SPECTRAL = ("CahnHilliard", "IntegralKuramotoSivashinsky", "KortewegDeVries", "KuramotoSivashinsky", "Vorticity")
SPECTRAL += ("SwiftHohenberg", "IncompressibleFlow", "ImplicitFriction", "NavierStokes3D")
SOURCES = ("Acoustic", "ElasticWave")
ITERATED = ("Kvaerno5", "BDF")

# The fallbacks that there are, each with the reason.
IN_LANES = dict.fromkeys(BY_KERNEL, {"platform_index"})  # asks for the platform: members share the answer
IN_LANES |= dict.fromkeys(SOURCES, {"scatter-add"})  # adds to a large array at a point
IN_PATTERNS = dict.fromkeys(SPECTRAL, {"fft"})  # every entry of a transform depends on all
IN_ENTRIES = IN_PATTERNS | dict.fromkeys(BY_KERNEL, {"cond"})  # one branch for each platform
IN_ENTRIES |= {"IncompressibleFlow": {"convert_element_type"}}  # to complex numbers, before a transform
IN_METHODS = dict.fromkeys(ITERATED, {"while"})  # Newton's iteration ends when all members have converged

ELSEWHERE = {
    *("closed_call", "core_map"),  # not in JAX 0.12
    *("log2", "one_minus_square", "polynomial"),  # from JAX 0.12 on
    "triton_kernel_call",  # of jax-triton
}
"""Primitives that the installed JAX need not have."""

CASES = {
    **{c.name: (c.make, lambda c=c: jnp.array(c.state)) for c in registry_models.EVERY},
    **{c.name: (c.make, lambda c=c: c.state(jnp.float32)) for c in registry_pdes.CASES if c.field == "real"},
}
each_model = pytest.mark.parametrize("name", CASES)


def rate_of(name):
    """A model as a function of a vector, and a vector."""
    make, state = CASES[name]
    model, y = make(), state()
    x, rebuilt = ravel_pytree(y)
    return (lambda x: ravel_pytree(model(0.0, rebuilt(x), None))[0]), x


def compared(tree):
    """The strings that a function which reads `primitive.name` compares names with."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and "primitive.name" in ast.unparse(function):
            for node in ast.walk(function):
                left = ast.unparse(node.left) if isinstance(node, ast.Compare) else ""
                if left == "name" or left.endswith("primitive.name"):
                    yield from (x.value for y in node.comparators for x in ast.walk(y) if isinstance(x, ast.Constant))


def names_with_rules():
    found = set(_elementwise._FOLD) | set(_interpret._REDUCTIONS) | set(MOVEMENTS) | set(_batched_primitives._RULES)
    found = found.union(*LOWERED.values())
    for name, value in vars(_names).items():
        if name.isupper():
            found |= set(value)
    for source in map(pathlib.Path.read_text, SRC.rglob("*.py")):
        if "primitive.name" in source:
            found |= {x for x in compared(ast.parse(source)) if isinstance(x, str) and x}
    return found


def test_names_are_those_of_primitives():
    """Fails where JAX renames a primitive that sciml has a rule for."""
    for module in ("jax.experimental.mosaic.gpu", "jax.experimental.pallas.mosaic_gpu", "jax.experimental.pallas.tpu"):
        importlib.import_module(module)
    known = {x.name for x in gc.get_objects() if isinstance(x, jex.core.Primitive)}
    assert names_with_rules() - known <= ELSEWHERE


@each_model
def test_lanes(name):
    make, state = CASES[name]
    found = fallbacks(lambda t, y: make()(t, y, None), 0.0, state())
    assert {x for x, reason in found.items() if reason.startswith("no rule")} == IN_LANES.get(name, set())


class Reader(_dependencies._Reader):
    """Notes the primitives whose results depend on all that they are given, for want of a rule."""

    def __init__(self, size):
        self.size, self.name, self.found = size, "", set()

    def _evaluate(self, eqn, values):
        before, self.name = self.name, eqn.primitive.name
        try:
            return super()._evaluate(eqn, values)
        finally:
            self.name = before

    def _of_all(self, values, shape):
        self.found.add(self.name)
        return super()._of_all(values, shape)


class Follower(_entries._Follower):
    """Notes the first primitive that it does not follow."""

    def _evaluated(self, eqn, values):
        try:
            return super()._evaluated(eqn, values)
        except _entries._NotFollowed as error:
            raise error if error.args else _entries._NotFollowed(eqn.primitive.name)


@each_model
def test_patterns_and_entries(name):
    rate, x = rate_of(name)
    closed, _ = traced_on_no_mesh(lambda x, v: jax.jvp(rate, (x,), (v,))[1], x, x)
    reader = Reader(x.size)
    identity = _dependencies.sp.eye_array(x.size, dtype=bool, format="csr")
    reader.run(closed.jaxpr, closed.consts, [_dependencies._Value(x.shape), _dependencies._Value(x.shape, identity)])
    assert reader.found == IN_PATTERNS.get(name, set())

    stopped = set()

    def follow(x):
        follower = Follower(x)
        try:
            follower.run(closed.jaxpr, closed.consts, [x, follower.identity])
        except _entries._NotFollowed as error:
            stopped.add(*error.args)
        return x

    jax.eval_shape(follow, x)
    assert stopped == IN_ENTRIES.get(name, set())


@pytest.mark.parametrize("name", [name for name in CASES if hasattr(getattr(models, name, None), "stencil")])
@pytest.mark.parametrize("kernel", LOWERED)
def test_stencils(name, kernel):
    make, state = CASES[name]
    y = state()
    try:
        rates = make().stencil(y)
    except NotForKernelsError as reason:
        assert name == "Acoustic" and "source" in str(reason)
        return
    update = StencilUpdate(
        rates.fn,
        fields=rates.fields,
        radius=rates.radius,
        boundary=rates.boundary,
        coefficients=tuple(rates.coefficients),
    )
    assert missing(update, rates.fields_of(y)[0].ndim, jnp.float32, rates.params, kernel) == []


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_methods(method):
    steps = dict(rtol=1e-4, atol=1e-6) if method.adaptive else dict(dt=0.01)

    def final(y):
        return sciml.solve(models.Lorenz63(), y, t0=0.0, t1=1.0, solver=method.solver(), throw=False, **steps).ys

    closed = jax.make_jaxpr(jax.vmap(final))(jnp.ones((4, 3)))
    assert {note.what for note in facts_of(closed).fallbacks} == IN_METHODS.get(method.name, set())
