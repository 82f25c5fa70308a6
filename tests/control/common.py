"""Optimal control problems whose solutions are known."""

import jax.numpy as jnp

from sciml import control, verify

GRAVITY = 9.81
DESCENT = verify.reference("brachistochrone_time", 2.0, 2.0, GRAVITY)
HEIGHT = verify.reference("goddard_height")


def integrator(t, y, u, args):
    return jnp.stack([y[1], u])


def brachistochrone():
    """The fastest slide without friction."""

    def model(t, y, angle, args):
        speed = y[2]
        return jnp.stack([speed * jnp.sin(angle), speed * jnp.cos(angle), GRAVITY * jnp.cos(angle)])

    return control.ControlProblem(
        model,
        terminal=lambda t1, y1, args: t1,
        end=lambda t1, y1, args: y1[:2] - 2.0,
        u_bounds=(0.0, 3.0),
        t1_bounds=(0.1, 5.0),
    )


def bryson_denham():
    """A cart that must come back with the opposite speed, and not go farther than `args`; the cost is 4 / (9 args)."""
    return control.ControlProblem(
        integrator,
        running=lambda t, y, u, farthest: u**2 / 2,
        path=lambda t, y, u, farthest: y[0] - farthest,
        end=lambda t1, y1, farthest: y1 - jnp.array([0.0, -1.0]),
    )


def goddard():
    """The highest flight of a rocket: full thrust, a singular arc, and none."""

    def model(t, y, thrust, args):
        height, speed, mass = y
        drag = 310.0 * speed**2 * jnp.exp(-500.0 * (height - 1))
        return jnp.stack([speed, (thrust - drag) / mass - 1 / height**2, -thrust / 0.5])

    return control.ControlProblem(
        model,
        terminal=lambda t1, y1, args: -y1[0],
        end=lambda t1, y1, args: y1[2] - 0.6,
        u_bounds=(0.0, 3.5),
        y_bounds=(jnp.array([1.0, 0.0, 0.6]), jnp.array([jnp.inf, jnp.inf, 1.0])),
        t1_bounds=(0.05, 1.0),
    )
