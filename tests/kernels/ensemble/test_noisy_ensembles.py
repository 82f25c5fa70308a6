"""Ensembles with noise in one kernel: interpreted, the paths are those of XLA by every method; kernels lower."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

from ..running import solve

pytestmark = pytest.mark.x64

COUNT = 150  # no block divides it


def drift(t, y, p):
    return jnp.stack([p - y[0] * y[1], y[0] - y[1]])


KINDS = {
    "additive": lambda t, y, p: jnp.full_like(y, 0.3),
    "diagonal": lambda t, y, p: 0.3 * jnp.sqrt(jnp.abs(y)),
    "scalar": lambda t, y, p: 0.3 * y,
    "general": lambda t, y, p: 0.2 * jnp.stack([jnp.stack([y[0], p, y[1]]), jnp.stack([y[1], -y[0], p])]),
}


def run(impl, noise, dtype=jnp.float32, keys=None, wanted=lambda sol: sol, **how):
    keys = jax.random.split(jax.random.key(0), COUNT) if keys is None else keys
    model, y0 = sciml.Stochastic(drift, KINDS[noise], noise=noise), jnp.ones(2, dtype)
    how = dict(dt=0.05) | how

    def member(key, p):
        return wanted(solve(model, y0, t0=0.0, t1=1.0, args=p, key=key, impl=impl, **how))

    members = jax.vmap(member, (0 if keys.ndim else None, 0))
    return jax.jit(members)(keys, jnp.linspace(0.5, 1.5, COUNT, dtype=dtype))


def agree(found, expected, dtype=jnp.float32):
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_array_equal(found.stats.accepted, expected.stats.accepted)
    np.testing.assert_allclose(found.ys, expected.ys, rtol=100 * float(jnp.finfo(dtype).eps))
    assert float(jnp.std(expected.ys[:, -1, 0])) > 0.05  # members differ by more than their rates


@pytest.mark.parametrize(
    "target, noise, solver",
    [
        ("gpu", "additive", diffrax.SRA1()),
        ("tpu", "additive", diffrax.SEA()),
        ("gpu", "diagonal", diffrax.Euler()),
        ("tpu", "diagonal", sciml.solvers.SRIW1()),
        ("gpu", "scalar", diffrax.ItoMilstein()),
        ("tpu", "general", diffrax.Heun()),
        ("gpu", "general", sciml.solvers.PlatenWeak2()),
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_paths_are_those_of_xla(target, noise, solver):
    agree(*(run(impl, noise, solver=solver) for impl in (f"interpret_{target}", "xla")))


def test_a_shorter_last_step_saved_times_and_float64():
    how = dict(dt=0.3, saveat=jnp.array([0.0, 0.4, 1.0]), solver=diffrax.Euler(), dtype=jnp.float64)
    found, expected = (run(impl, "diagonal", **how) for impl in ("interpret_gpu", "xla"))
    agree(found, expected, jnp.float64)
    assert found.ys.shape == (COUNT, 3, 2)


def test_one_key_is_one_path_for_all_members():
    found, expected = (
        run(impl, "diagonal", keys=jax.random.key(1), solver=diffrax.Euler()) for impl in ("interpret_gpu", "xla")
    )
    np.testing.assert_allclose(found.ys, expected.ys, rtol=1e-5)
    assert np.all(np.diff(found.ys[:, -1, 1]) > 0)  # the rates alone tell members apart


@pytest.mark.parametrize("adjoint", [sciml.adjoints.Checkpointed(), sciml.adjoints.Forward()], ids=["back", "forward"])
def test_pathwise_gradients_are_those_of_xla(adjoint):
    keys = jax.random.split(jax.random.key(0), 8)
    model, y0 = sciml.Stochastic(drift, KINDS["diagonal"]), jnp.ones(2, jnp.float32)

    def slopes(impl):
        def end(p, key):
            how = dict(dt=0.25, solver=diffrax.Euler(), adjoint=adjoint, impl=impl)
            return jnp.sum(solve(model, y0, t0=0.0, t1=1.0, args=p, key=key, **how).ys)

        return jax.jit(jax.vmap(jax.grad(end), (None, 0)))(jnp.float32(0.7), keys)

    np.testing.assert_allclose(slopes("interpret_gpu"), slopes("xla"), rtol=1e-5)


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
def test_they_lower_without_their_machine(kernel, platform, call):
    model = sciml.Stochastic(drift, KINDS["additive"], noise="additive")

    def member(key):
        how = dict(dt=0.01, solver=diffrax.SRA1(), impl=f"mosaic_{kernel}")
        return solve(model, jnp.ones(2, jnp.float32), t0=0.0, t1=1.0, args=jnp.float32(1), key=key, **how).ys

    keys = jax.random.split(jax.random.key(0), COUNT)
    assert call in jax.jit(jax.vmap(member)).trace(keys).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize(
    "how",
    [dict(dt=None), dict(key=sciml.BrownianPath(jax.random.key(0), 0.0, 1.0))],
    ids=["error control", "a path"],
)
def test_a_tree_of_noise_is_walked_by_xla(how):
    model = sciml.Stochastic(drift, KINDS["diagonal"])
    how = dict(dt=0.1, key=jax.random.key(0)) | how
    with pytest.raises(ValueError, match="kernels do not support Brownian paths"):
        solve(model, jnp.ones(2), t0=0.0, t1=1.0, args=1.0, impl="pallas", **how)
