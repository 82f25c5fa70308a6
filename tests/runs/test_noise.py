"""Long runs with noise take the steps that `solve` takes, wherever segments end, and after a crash."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

KEYS = jax.random.split(jax.random.key(0), 5)
TS = np.linspace(0.0, 1.0, 5)
NOISY = sciml.Stochastic(lambda t, y, args: -args * y, lambda t, y, args: 0.3 * y + 0.1 * jnp.sin(y))
POPULATION = sciml.Reactions([[1], [-1]], lambda x, args: jnp.stack([jnp.full_like(x[0], 10.0), x[0]]))
CASES = {
    "fixed": (NOISY, np.ones(2), dict(dt=1 / 32, args=2.0)),
    "adaptive": (NOISY, np.ones(2), dict(rtol=1e-2, atol=1e-3, args=2.0)),
    "reactions": (POPULATION, np.zeros(1), {}),
}


def run(case, key, **more):
    model, y0, options = CASES[case]
    y0 = jnp.asarray(y0)
    return sciml.simulate(model, y0, t0=0.0, t1=1.0, key=key, saveat=TS, progress=False, **options, **more)


@pytest.mark.x64
@pytest.mark.parametrize("case", CASES)
def test_steps_are_those_of_solve(case):
    model, y0, options = CASES[case]
    solve = lambda key: sciml.solve(model, y0, t0=0.0, t1=1.0, key=key, saveat=TS, **options).ys  # noqa: E731
    one = run(case, KEYS[2], segment_steps=7)
    # two programs of one arithmetic: compiled without optimisation, only one of them fuses a product and a sum
    np.testing.assert_allclose(one.values, solve(KEYS[2]), rtol=4 * np.finfo(float).eps)
    np.testing.assert_array_equal(run(case, KEYS[2], segment_steps=11).values, one.values)
    many = run(case, KEYS, segment_steps=5)
    np.testing.assert_allclose(np.moveaxis(many.values, 1, 0), jax.vmap(solve)(KEYS), rtol=1e-10)
    again = run(case, KEYS, segment_steps=11)
    np.testing.assert_array_equal(again.values, many.values)


@pytest.mark.x64
def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    whole = run("fixed", KEYS[1])
    store = str(tmp_path / "run")

    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.done > 0.4:
            raise Stopped

    model, y0, options = CASES["fixed"]
    how = dict(t0=0.0, t1=1.0, key=KEYS[1], saveat=TS, segment_steps=4, store=store, checkpoint_every=0.0, **options)
    with pytest.raises(Stopped):
        sciml.simulate(model, jnp.asarray(y0), progress=stop, **how)
    resumed = sciml.simulate(model, jnp.asarray(y0), progress=False, **how)
    np.testing.assert_array_equal(resumed.values, whole.values)
    with pytest.raises(sciml.stores.StoreError):
        sciml.simulate(model, jnp.asarray(y0), progress=False, **(how | dict(key=KEYS[2])))


def test_parameters_of_members():
    model, y0, _ = CASES["fixed"]
    rates = jnp.array([1.0, 2.0, 3.0])
    options = dict(t0=0.0, t1=1.0, dt=1 / 32, saveat=TS, progress=False)
    found = sciml.simulate(model, y0, args=rates, in_axes=(None, None, 0), key=KEYS[:3], **options)
    alone = sciml.simulate(model, y0, args=rates[1], key=KEYS[1], **options)
    np.testing.assert_allclose(found.values[:, 1], alone.values, rtol=1e-5)
    with pytest.raises(ValueError, match="its own `key`"):
        sciml.simulate(model, y0, args=rates, in_axes=(None, None, 0), key=KEYS[0], **options)
    with pytest.raises(ValueError, match="requires `key`"):
        sciml.simulate(model, y0, args=2.0, **options)
    with pytest.raises(ValueError, match="`key` requires a model with noise"):
        sciml.simulate(lambda t, y, args: -y, y0, key=KEYS[0], **options)
