"""The sizes of programs, which decide how long one waits for the first result: equations as JAX traces them.

A bound is a tenth above the size at the time of writing. A change that makes a program smaller lowers its bound.
"""

import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml._jax.programs import equations
from sciml.spatial import Dirichlet, Grid, Neumann, Outflow, Robin, pulse

RODAS, BDF = sciml.solvers.Rodas5P(), sciml.solvers.BDF()


def lorenz(t, y, rho):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def chain(t, y, k):
    flow = k * jnp.logspace(0, 6, y.size, dtype=y.dtype) * y / (1 + y**2)
    return jnp.roll(flow, 1) - flow


def ring(t, y, k):
    return k * jnp.sin(jnp.roll(y, 1)) - y * y


def solve(field, size, **options):
    y0 = jnp.linspace(0.5, 1.0, size)
    return lambda k: jnp.sum(sciml.solve(field, y0, t0=0.0, t1=1.0, args=k, **options).ys ** 2)


def hires(k):
    y0 = k * jnp.ones(8)
    return jnp.sum(sciml.solve(sciml.models.HIRES(), y0, t0=0.0, t1=1.0, solver=RODAS).ys ** 2)


def falling(t, y, k):
    return jnp.stack([y[1], jnp.full_like(y[1], -9.81)])


BOUNCE = sciml.Event(lambda t, y, k: y[0], lambda t, y, k: jnp.stack([0 * y[0], -0.4 * k * y[1]]), direction=-1)
SAVES = jnp.linspace(0.0, 1.0, 50)


def heat(order):
    """Between unequal walls, by a stabilised method."""
    grid = Grid((8, 8))
    walls = {"x-": Dirichlet(1.0), "x+": Robin(a=1.0, b=0.5, c=0.0), "y": Neumann(0.0)}
    y0, solver = pulse(grid), None if order is None else sciml.solvers.ARK(order=order)

    def run(k):
        model = sciml.models.Diffusion(grid, walls, k + pulse(grid))
        return jnp.sum(sciml.solve(model, y0, t0=0.0, t1=0.1, solver=solver).ys ** 2)

    return run


def tube(k):
    """A shock tube, whose vector field is a long program."""
    grid = Grid(32)
    gas = sciml.models.Euler(grid, Outflow(), gamma=0.7 * k)
    w = jnp.stack([1.0 + pulse(grid), 0.0 * pulse(grid), 1.0 + pulse(grid)])
    return jnp.sum(sciml.solve(gas, gas.conserved(w), t0=0.0, t1=0.1).ys ** 2)


PROGRAMS = {
    "Lorenz": (solve(lorenz, 3), 1250, 3100),
    "ring of 12": (solve(ring, 12, saveat=SAVES), 1050, 2650),
    "HIRES": (hires, 3800, 14400),
    "chain of 12": (solve(chain, 12, solver=RODAS, saveat=SAVES), 1200, 3400),
    "chain of 12, BDF": (solve(chain, 12, solver=BDF, saveat=SAVES), 3100, 9400),
    "chain of 100": (solve(chain, 100, solver=RODAS), 3000, 8900),
    "bouncing ball": (solve(falling, 2, events=BOUNCE), 2900, 8800),
    "heat, unequal walls": (heat(None), 2300, 5800),
    "shock tube": (tube, 2850, 6800),
    "heat, unequal walls, ARK": (heat(3), 3600, 12000),
}


def size(fn):
    return sum(1 for _ in equations(jax.make_jaxpr(fn)(jnp.asarray(2.0)).jaxpr))


@pytest.mark.x64
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_stay_small(name):
    run, forward, gradient = PROGRAMS[name]
    found = size(run), size(jax.grad(run))
    assert found[0] <= forward and found[1] <= gradient, found


@pytest.mark.x64
def test_a_member_of_many_unknowns_is_no_program_of_single_numbers():
    """With twice as many unknowns the program of a single member is no larger."""
    assert size(jax.grad(solve(ring, 16))) <= 1.05 * size(jax.grad(solve(ring, 40)))
    assert size(jax.grad(solve(chain, 16, solver=RODAS))) <= 1.05 * size(jax.grad(solve(chain, 40, solver=RODAS)))


@pytest.mark.x64
def test_a_hundred_leaves_make_a_program_like_that_of_one_array():
    """State and parameters of single numbers, and a field that is written for each of them."""
    names = [f"y{i}" for i in range(100)]

    def of_leaves(k):
        y0, ks = dict.fromkeys(names, jnp.ones(())), {name: k * i for i, name in enumerate(names)}
        field = lambda t, y, ks: {name: -ks[name] * y[name] for name in names}  # noqa: E731
        return sum(jnp.sum(y) for y in sciml.solve(field, y0, t0=0.0, t1=1.0, args=ks).ys.values())

    def of_array(k):
        field = lambda t, y, ks: -ks * y  # noqa: E731
        return jnp.sum(sciml.solve(field, jnp.ones(100), t0=0.0, t1=1.0, args=k * jnp.arange(100.0)).ys)

    assert size(of_leaves) <= 2 * size(of_array)
    assert size(jax.grad(of_leaves)) <= 2 * size(jax.grad(of_array))
