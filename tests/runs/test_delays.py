"""Long runs with delays take the steps that `solve` takes, wherever segments end, and after a crash."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

TS = np.linspace(0.0, 6.0, 7)
MODEL = sciml.Delayed(
    lambda t, y, past, args: -args * past * y, 1.0, history=lambda t, args: jnp.full((2,), 0.5) + 0.1 * t
)
Y0 = jnp.array([0.5, 0.8])


def run(args=1.4, model=MODEL, y0=Y0, **more):
    how = dict(t0=0.0, t1=6.0, saveat=TS, progress=False, dt=0.125) | more
    return sciml.simulate(model, y0, args=args, **how)


@pytest.mark.x64
@pytest.mark.parametrize("steps", [dict(dt=0.125), dict(dt=None, rtol=1e-6, atol=1e-8)], ids=["fixed", "adaptive"])
def test_steps_are_those_of_solve(steps):
    given = {name: x for name, x in steps.items() if x is not None}
    solve = lambda rate: sciml.solve(MODEL, Y0, t0=0.0, t1=6.0, args=rate, saveat=TS, **given)  # noqa: E731
    one, sol = run(segment_steps=5, **steps), solve(1.4)
    np.testing.assert_array_equal(one.values, sol.ys)
    np.testing.assert_array_equal(one.y, sol.ys[-1])
    rates = jnp.array([1.0, 1.4])
    many = run(rates, segment_steps=7, in_axes=(None, None, 0), **steps)
    np.testing.assert_allclose(many.values[:, 1], sol.ys, rtol=1e-10)


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    store = str(tmp_path / "run")
    how = dict(segment_steps=6, store=store, checkpoint_every=0.0)

    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.done > 2.5:
            raise Stopped

    with pytest.raises(Stopped):
        run(**how | dict(progress=stop))
    np.testing.assert_array_equal(run(**how).values, run(segment_steps=6).values)
    with pytest.raises(sciml.stores.StoreError):
        run(2.0, **how)


class Fall(sciml.AbstractDelayed):
    """Falls as fast as it was high."""

    delays: jax.Array
    kept = 32

    def rate(self, t, y, delayed, args):
        return -delayed[0]

    def before(self, t, args):
        return jnp.ones(())


def test_models_and_events_of_members():
    """Delays differ between members, and the jump of an event comes back."""
    delays = jnp.array([0.75, 1.0])
    how = dict(t0=0.0, t1=1.5, rtol=1e-5, events=sciml.Schedule(jnp.array([0.5]), lambda t, y, args: y + 1.0))
    found = sciml.simulate(Fall(delays), jnp.ones(()), in_axes=(0, None, None), progress=False, segment_steps=4, **how)
    # 1 - t and one more from 0.5 on; what comes back is the integral of that from the delay on
    exact = [2.0 - d - ((1.5 - d) - (1.5 - d) ** 2 / 2 + (1.0 - d)) for d in np.asarray(delays)]
    np.testing.assert_allclose(found.y, exact, rtol=1e-4, atol=1e-4)


def test_refusals():
    with pytest.raises(ValueError, match="longer than the shortest delay"):
        run(dt=1.5)
    with pytest.raises(TypeError, match="does not support delays"):
        run(solver=sciml.solvers.BDF())
    with pytest.raises(ValueError, match="forwards in time"):
        run(t1=-6.0, dt=-0.125, saveat=None)
