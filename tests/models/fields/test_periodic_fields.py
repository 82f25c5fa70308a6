"""Models of periodic fields: each equal to its formula, with derivatives written out, and its invariants."""

import functools as ft
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import AbstractSemilinear, models, verify
from sciml.spatial import Grid, Periodic

LENGTHS = (7.0, 11.0)


class Wave:
    """A sum of a few waves on a grid, with its derivatives."""

    def __init__(self, shape, real):
        rng = np.random.default_rng(1)
        self.shape, self.terms = shape, []
        for _ in range(4):
            k = rng.integers(-2, 3, len(shape))
            self.terms.append((2 * np.pi * k / np.array(LENGTHS[: len(shape)]), rng.normal() + 1j * rng.normal()))
        self.real = real
        self.x = np.meshgrid(*(n * np.arange(m) / m for n, m in zip(LENGTHS, shape)), indexing="ij")

    def __call__(self, *orders):
        total = np.zeros(self.shape, complex)
        for k, size in self.terms:
            factor = np.prod([(1j * q) ** n for q, n in zip(k, orders)]) if orders else 1
            total = total + size * factor * np.exp(1j * sum(q * x for q, x in zip(k, self.x)))
        return total.real if self.real else total

    def streamed(self, *orders):
        """Derivatives of the stream function of a vorticity, of which the mean has none."""
        total = np.zeros(self.shape, complex)
        for k, size in self.terms:
            if np.any(k):
                factor = np.prod([(1j * q) ** n for q, n in zip(k, orders)]) / np.sum(k**2)
                total = total + size * factor * np.exp(1j * sum(q * x for q, x in zip(k, self.x)))
        return total.real

    def laplacian(self, power=1):
        total = np.zeros(self.shape, complex)
        for k, size in self.terms:
            total = total + size * (-np.sum(k**2)) ** power * np.exp(1j * sum(q * x for q, x in zip(k, self.x)))
        return total.real if self.real else total


def ginzburg_landau(u):
    a = u()
    return a + (1 + 0.3j) * u.laplacian() - (1 - 0.7j) * np.abs(a) ** 2 * a


def vorticity(u):
    """With a forcing that is the field itself."""
    speed = [u.streamed(0, 1), -u.streamed(1, 0)]
    transport = speed[0] * u(1, 0) + speed[1] * u(0, 1)
    return -transport + 0.3 * u.laplacian() - 0.2 * u() + u()


def cahn_hilliard(u):
    cube = 3 * u() ** 2 * u.laplacian() + 6 * u() * (u(1, 0) ** 2 + u(0, 1) ** 2)
    return 0.7 * (cube - u.laplacian() - 0.3**2 * u.laplacian(2))


def trap(shape):
    """Potential energies at the points of `Wave`, none of them zero."""
    x = np.meshgrid(*(n * np.arange(m) / m for n, m in zip(LENGTHS, shape)), indexing="ij")
    return 1.5 + sum(np.cos(2 * np.pi * q / n) for q, n in zip(x, LENGTHS)) / 3


def box(shape):
    return Grid(shape, 0.0, LENGTHS[: len(shape)])


FORMULAS = {
    "CahnHilliard": (
        lambda shape: models.CahnHilliard(box(shape), Periodic(), width=0.3, mobility=0.7), (18, 20), cahn_hilliard
    ),
    "GinzburgLandau": (
        lambda shape: models.GinzburgLandau(shape, jnp.array(LENGTHS), alpha=0.3, beta=-0.7), (18, 20), ginzburg_landau
    ),
    "GrossPitaevskii": (
        lambda shape: models.GrossPitaevskii(box(shape), Periodic(), potential=trap(shape), coupling=0.6),
        (18, 20),
        lambda u: 0.5j * u.laplacian() - 1j * (trap(u.shape) + 0.6 * np.abs(u()) ** 2) * u(),
    ),
    "IntegralKuramotoSivashinsky": (
        lambda shape: models.IntegralKuramotoSivashinsky(shape, jnp.array(LENGTHS), viscosity=0.8),
        (18, 20),
        lambda u: -(u(1, 0) ** 2 + u(0, 1) ** 2) / 2 - u.laplacian() - 0.8 * u.laplacian(2),
    ),
    "KortewegDeVries": (
        lambda shape: models.KortewegDeVries(*shape, LENGTHS[0], dispersion=0.3),
        (20,),
        lambda u: -6 * u() * u(1) - 0.3 * u(3),
    ),
    "KuramotoSivashinsky": (
        lambda shape: models.KuramotoSivashinsky(*shape, LENGTHS[0], viscosity=0.8),
        (20,),
        lambda u: -u() * u(1) - u(2) - 0.8 * u(4),
    ),
    "NonlinearSchroedinger": (
        lambda shape: models.NonlinearSchroedinger(shape, jnp.array(LENGTHS), coupling=0.6),
        (18, 20),
        lambda u: 0.5j * u.laplacian() + 0.6j * np.abs(u()) ** 2 * u(),
    ),
    "Vorticity": (
        lambda shape: models.Vorticity(shape, jnp.array(LENGTHS), 0.3, 0.2, Wave(shape, True)()), (18, 20), vorticity
    ),
    "SwiftHohenberg": (
        lambda shape: models.SwiftHohenberg(box(shape), Periodic(), rate=0.3, wavenumber=1.1, quadratic=0.6),
        (18, 20),
        lambda u: (
            (0.3 - 1.1**4) * u() - 2 * 1.1**2 * u.laplacian() - u.laplacian(2) + 0.6 * u() ** 2 - u() ** 3
        ),
    ),
}  # fmt: skip
COMPLEX = ("GinzburgLandau", "GrossPitaevskii", "NonlinearSchroedinger")
each = pytest.mark.parametrize("name", FORMULAS)


def case(name, dtype=None):
    make, shape, formula = FORMULAS[name]
    wave = Wave(shape, name not in COMPLEX)
    y = jnp.asarray(wave())
    if dtype is not None:
        y = y.astype(jnp.result_type(jnp.result_type(dtype), jnp.complex64) if name in COMPLEX else dtype)
    return make(shape), y, formula(wave)


def test_every_model_of_a_field_is_registered():
    public = {name for name, value in vars(models).items() if inspect.isclass(value)}
    assert {n for n in public if issubclass(getattr(models, n), AbstractSemilinear)} == set(FORMULAS) | {
        "NavierStokes3D"
    }


@each
def test_field_is_its_formula(name, dtype):
    with jax.numpy_dtype_promotion("standard"):
        model, y, want = case(name, dtype)
    got = jax.jit(lambda m, y: m(0.0, y, None))(model, y)
    assert got.dtype == y.dtype and got.shape == y.shape
    np.testing.assert_allclose(got, want, atol=1000 * float(jnp.finfo(dtype).eps) * np.abs(want).max())


@pytest.mark.x64
@each
def test_every_parameter_is_differentiated(name):
    with jax.numpy_dtype_promotion("standard"):
        model, y, _ = case(name)
    weights = jnp.asarray(np.random.default_rng(2).normal(size=y.shape))

    @jax.jit
    def loss(model):
        return jnp.sum(weights * jnp.real(model(0.0, y, None)))

    verify.check_gradient(loss, model, rtol=1e-6, atol=1e-6)
    assert all(np.all(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(eqx.filter_jit(jax.grad(loss))(model)))


@pytest.mark.x64
@pytest.mark.parametrize(
    "name, quantity",
    [("KortewegDeVries", q) for q in ("mass", "momentum", "energy")]
    + [("NonlinearSchroedinger", "mass"), ("CahnHilliard", "mass")]
    + [("GrossPitaevskii", q) for q in ("mass", "energy")],
)
def test_invariants_have_no_derivative_along_the_field(name, quantity):
    with jax.numpy_dtype_promotion("standard"):
        model, y, _ = case(name)

    @ft.partial(jax.jit, static_argnums=0)
    def slope(name, y, f):
        return jax.jvp(getattr(model, name), (y,), (f,))

    rate = model(0.0, y, None)
    _, change = slope(quantity, y, rate)
    assert abs(change) < 1e-9 * float(jnp.max(jnp.abs(rate)))
