"""Loops that run to every stop and on to the end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml._jax._loops import scan_to_end, while_loop


def to_every_stop(stops, end, reverse=False):
    """Steps of one to every stop and on to the end; what is emitted is the time and how many iterations it took."""

    def advance(carry, stop, beyond):
        stop = jnp.where(beyond, end, stop)
        far = (lambda time: time - stop) if reverse else (lambda time: stop - time)
        step = -1.0 if reverse else 1.0
        return while_loop(lambda c: far(c[0]) > 0, lambda c: (c[0] + step, c[1] + 1), carry, like=stop)

    def emit(carry, stop):
        return {"time": carry[0] * jnp.ones(2), "iterations": carry[1]}, stop

    start = jnp.asarray(20.0 if reverse else 0.0), jnp.asarray(0)
    return scan_to_end(advance, emit, start, stops, reverse=reverse)


@pytest.mark.parametrize("stops", [[2.0], [0.0, 2.0, 2.0, 7.0]])
def test_every_stop_is_emitted_and_the_end_is_not(stops):
    (time, iterations), (rows, emitted) = to_every_stop(jnp.asarray(stops), 9.0)
    assert time == 9 and iterations == 9
    np.testing.assert_array_equal(emitted, stops)
    np.testing.assert_array_equal(rows["iterations"], stops)
    np.testing.assert_array_equal(rows["time"], np.stack([stops, stops], axis=1))


def test_from_the_last_stop_to_the_first():
    stops = [3.0, 3.0, 11.0]
    (time, iterations), (rows, _) = to_every_stop(jnp.asarray(stops), 1.0, reverse=True)
    assert time == 1 and iterations == 19
    np.testing.assert_array_equal(rows["iterations"], 20 - np.asarray(stops))


def test_forward_mode_and_members():
    """A member's rows are its own, and so are their derivatives."""

    def rows(rate, stops):
        def advance(carry, stop, beyond):
            return carry * jnp.exp(rate * jnp.where(beyond, 0.0, stop))

        return scan_to_end(advance, lambda carry, stop: carry, jnp.ones_like(rate), stops)[1]

    stops = jnp.asarray([0.5, 1.0, 2.0])
    rates = jnp.asarray([0.1, 0.3])
    expected = np.exp(np.outer(rates, np.cumsum(stops)))
    np.testing.assert_allclose(jax.vmap(rows, (0, None))(rates, stops), expected, rtol=1e-6)
    slopes = jax.vmap(jax.jacfwd(rows), (0, None))(rates, stops)
    np.testing.assert_allclose(slopes, expected * np.cumsum(np.asarray(stops)), rtol=1e-6)


def test_the_body_stands_in_the_program_once():
    def run(x):
        return scan_to_end(lambda c, stop, beyond: jnp.sin(c), lambda c, stop: c, x, jnp.arange(3.0))

    assert str(jax.make_jaxpr(run)(1.0)).count("sin ") == 1
