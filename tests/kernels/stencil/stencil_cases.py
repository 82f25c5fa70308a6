"""Updates that the tests of stencils share, and fields to start from."""

import jax.numpy as jnp
import numpy as np

from sciml.kernels.stencil import StencilUpdate
from sciml.spatial import Boundaries, Dirichlet, Extrapolate, Grid, Neumann, Periodic, Robin

# Weights of central second differences of order 2, 4, 6, 8, from the middle outwards.
SECOND = {
    1: (-2.0, 1.0),
    2: (-5 / 2, 4 / 3, -1 / 12),
    3: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
    4: (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560),
}


def laplacian(nb, field, ndim, radius=1):
    weights = SECOND[radius]
    total = ndim * weights[0] * nb(field)
    for axis in range(ndim):
        for j in range(1, radius + 1):
            shift = [0] * ndim
            for sign in (j, -j):
                shift[axis] = sign
                total = total + weights[j] * nb(field, *shift)
    return total


def heat(ndim, radius=1, boundary=None):
    return StencilUpdate(
        lambda nb, rate: nb("u") + rate * laplacian(nb, "u", ndim, radius), radius=radius, boundary=boundary
    )


def wave(ndim, radius=1, boundary=None):
    def fn(nb, p):
        return 2 * nb("u") - nb("before") + p * laplacian(nb, "u", ndim, radius), nb("u")

    return StencilUpdate(fn, fields=("u", "before"), radius=radius, boundary=boundary)


def acoustic(ndim, radius=1, boundary=None):
    def fn(nb, p):
        return {"u": 2 * nb("u") - nb("before") + p * nb("c") * laplacian(nb, "u", ndim, radius), "before": nb("u")}

    return StencilUpdate(fn, fields=("u", "before"), coefficients=("c",), radius=radius, boundary=boundary)


def corners(boundary=None):
    """Reads neighbours in three dimensions that are on no axis."""

    def fn(nb, p):
        around = nb("u", 1, 1, 0) + nb("u", -1, 0, 1) + nb("u", 1, -1, -1)
        return nb("u") + p * (around - 3 * nb("u"))

    return StencilUpdate(fn, boundary=boundary)


def gray_scott(ndim=2, boundary=None):
    def fn(nb, p):
        u, v = nb("u"), nb("v")
        reaction = u * v * v
        return (
            u + p["Du"] * laplacian(nb, "u", ndim) - reaction + p["F"] * (1 - u),
            v + p["Dv"] * laplacian(nb, "v", ndim) + reaction - (p["F"] + p["k"]) * v,
        )

    return StencilUpdate(fn, fields=("u", "v"), boundary=boundary)


PEARSON = {"Du": 0.16, "Dv": 0.08, "F": 0.035, "k": 0.065}


def nonlinear_diffusion(boundary=None):
    """Reads all neighbours on all sides in a way that is not linear."""

    def fn(nb, p):
        flow = 0.0 * nb("u")
        for shift in ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1)):
            jump = nb("u", *shift) - nb("u")
            flow = flow + jump / (1 + p * jump * jump)
        return nb("u") + 0.1 * nb("c", 0, 1) * flow

    return StencilUpdate(fn, coefficients=("c",), boundary=boundary)


def field(shape, dtype, seed=0):
    return jnp.asarray(np.random.default_rng(seed).random(shape), dtype)


CONDITIONS = {
    "dirichlet": Dirichlet(0.3),
    "neumann": Neumann(-0.5),
    "robin": Robin(1.0, 0.4, 0.2),
    "extrapolate": Extrapolate(),
}


def boundaries(kind, shape):
    """Boundaries of a grid by the name of a condition, or `mixed`: periodic and walls that differ."""
    grid = Grid(shape)
    if kind == "periodic":
        return Boundaries(grid, Periodic())
    if kind == "mixed":
        sides = {"x-": Dirichlet(0.3), "x+": Neumann(0.2)} | dict.fromkeys(grid.names[1:], Periodic())
        return Boundaries(grid, sides)
    if kind == "walls":
        sides = {
            "x-": Dirichlet(0.3),
            "x+": Robin(1.0, 0.4, 0.2),
            "y-": Neumann(0.2),
            "y+": Extrapolate(),
            "z": Periodic(),
        }
        return Boundaries(grid, {name: c for name, c in sides.items() if name[0] in grid.names})
    return Boundaries(grid, CONDITIONS[kind])


KINDS = ("periodic", "dirichlet", "neumann", "robin", "extrapolate", "mixed", "walls")
