"""Exact and published results for viscous flows: channels, a driven cavity, a cylinder, a grid of rods."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import Legendre

# When a layer of fluid that is heated from below begins to turn over.
#
# In units of the depth of the layer and of the time in which heat diffuses through it, small disturbances
# $e^{i k x + \sigma t}$ of the vertical velocity $W$ and the temperature $\Theta$ obey, with $D = d/dz$,
#
# $$\tfrac{\sigma}{\mathrm{Pr}} (D^2 - k^2) W = (D^2 - k^2)^2 W - \mathrm{Ra}\, k^2\, \Theta, \qquad
#   \sigma \Theta = W + (D^2 - k^2) \Theta.$$
#
# Between rigid walls $W = DW = \Theta = 0$. Galerkin's method with Legendre polynomials times $(1 - s^2)^2$ and $1 -
# s^2$, $s = 2 z - 1$, turns that into an eigenvalue problem; its error falls faster than any power of their number.


_DEGREES = 16


def rayleigh_benard_growth(
    rayleigh: float, wavenumber: float = 3.117, prandtl: float = 1.0, walls: str = "rigid"
) -> float:
    r"""Returns the rate $\sigma$ at which the fastest disturbance of a layer heated from below grows.

    Lengths are in units of its depth $d$, times in $d^2 / \kappa$, and

    $$\mathrm{Ra} = \frac{\beta g\, \Delta T\, d^3}{\nu \kappa}, \qquad \mathrm{Pr} = \frac{\nu}{\kappa}.$$

    Args:
        rayleigh: $\mathrm{Ra}$.
        wavenumber: $k$, along the layer.
        prandtl: $\mathrm{Pr}$.
        walls: `"rigid"`, to which the fluid sticks, or `"free"`, along which it slips; the temperature is given.

    Raises:
        ValueError: If the walls are of another kind.

    Source:
        S. Chandrasekhar, Hydrodynamic and Hydromagnetic Stability, Oxford, 1961, chapter II.

    Example:
        ```python
        from sciml import verify

        assert verify.reference("rayleigh_benard_growth", 1700.0) < 0
        assert verify.reference("rayleigh_benard_growth", 1720.0) > 0
        ```
    """
    if walls == "free":
        square = math.pi**2 + wavenumber**2
        mean, product = (prandtl + 1) * square / 2, prandtl * square**2
        return math.sqrt(mean**2 - product + prandtl * rayleigh * wavenumber**2 / square) - mean
    inertia, bending, coupling, heat, conduction = _matrices(wavenumber, walls)
    n = len(inertia)
    zero = np.zeros((n, n))
    left = np.block([[inertia / prandtl, zero], [zero, heat]])
    right = np.block([[-bending, rayleigh * wavenumber**2 * coupling], [coupling.T, -conduction]])
    return float(np.max(np.linalg.eigvals(np.linalg.solve(left, right)).real))


def rayleigh_benard_onset(walls: str = "rigid") -> tuple[float, float]:
    r"""Returns the Rayleigh number from which on disturbances grow, and the wavenumber of the first that does.

    Between rigid walls 1707.762 and 3.1163, between free ones $27 \pi^4 / 4$ and $\pi / \sqrt 2$, whatever the Prandtl
    number.

    Args:
        walls: `"rigid"` or `"free"`.

    Raises:
        ValueError: If the walls are of another kind.

    Source:
        S. Chandrasekhar, Hydrodynamic and Hydromagnetic Stability, Oxford, 1961, chapter II; computed here.

    Example:
        ```python
        from sciml import verify

        rayleigh, wavenumber = verify.reference("rayleigh_benard_onset")
        assert abs(rayleigh - 1707.762) < 1e-3 and abs(wavenumber - 3.1163) < 1e-4
        ```
    """
    if walls == "free":
        return 27 * math.pi**4 / 4, math.pi / math.sqrt(2)
    low, high, golden = 2.0, 5.0, (math.sqrt(5) - 1) / 2
    while high - low > 1e-7:  # the curve has one minimum
        inner = high - golden * (high - low), low + golden * (high - low)
        if _marginal(inner[0], walls) < _marginal(inner[1], walls):
            high = inner[1]
        else:
            low = inner[0]
    wavenumber = (low + high) / 2
    return _marginal(wavenumber, walls), wavenumber


def _marginal(wavenumber: float, walls: str) -> float:
    """The Rayleigh number at which disturbances of a wavenumber neither grow nor fade."""
    _, bending, coupling, _, conduction = _matrices(wavenumber, walls)
    drive = np.linalg.solve(bending, coupling @ np.linalg.solve(conduction, coupling.T))
    return float(1 / (wavenumber**2 * np.max(np.linalg.eigvals(drive).real)))


def _matrices(wavenumber: float, walls: str) -> tuple[np.ndarray, ...]:
    """Integrals over products of the functions and their derivatives."""
    if walls != "rigid":
        raise ValueError(f'`walls` must be "rigid" or "free", but is {walls!r}.')
    bubble, degrees = Legendre([2 / 3, 0, -2 / 3]), range(_DEGREES)  # 1 - s^2
    flows = [bubble**2 * Legendre.basis(n) for n in degrees]
    warmths = [bubble * Legendre.basis(n) for n in degrees]
    places, weights = np.polynomial.legendre.leggauss(_DEGREES + 6)

    def values(functions: list, order: int) -> np.ndarray:
        return np.array([(f.deriv(order) if order else f)(places) * 2.0**order for f in functions])

    w, dw, ddw = (values(flows, order) for order in range(3))
    warm, slope = (values(warmths, order) for order in range(2))
    square = wavenumber**2
    curved = ddw - square * w

    def integral(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a * weights / 2) @ b.T

    return (
        integral(dw, dw) + square * integral(w, w),
        integral(curved, curved),
        integral(w, warm),
        integral(warm, warm),
        integral(slope, slope) + square * integral(warm, warm),
    )


def kovasznay(
    x: Float[Array, "..."], y: Float[Array, "..."], reynolds: float | Array = 40.0
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    r"""Returns Kovasznay's flow, an exact steady solution of the Navier-Stokes equations in the plane.

    $$u = 1 - e^{\lambda x} \cos 2 \pi y, \quad v = \tfrac{\lambda}{2 \pi} e^{\lambda x} \sin 2 \pi y, \quad
      p = \tfrac12 (1 - e^{2 \lambda x}), \qquad \lambda = \tfrac{R}{2} - \sqrt{\tfrac{R^2}{4} + 4 \pi^2}$$

    with the viscosity $1 / R$. It is periodic along $y$, with the period 1.

    Args:
        x: Along the flow.
        y: Across it; it broadcasts against `x`.
        reynolds: $R$.

    Returns:
        Both components of the velocity, and the pressure over the density.

    Source:
        L. I. G. Kovasznay, Proc. Camb. Phil. Soc. 44:58, 1948.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        u, v, p = verify.reference("kovasznay", jnp.zeros(1), jnp.zeros(1))
        assert u[0] == v[0] == p[0] == 0.0
        ```
    """
    dtype = jnp.result_type(x, y)
    half = jnp.asarray(reynolds, dtype) / 2
    rate = -4 * math.pi**2 / (half + jnp.sqrt(half**2 + 4 * math.pi**2))  # the same, without cancellation
    decay, phase = jnp.exp(rate * x), 2 * math.pi * y
    u = 1 - decay * jnp.cos(phase)
    v = rate / (2 * math.pi) * decay * jnp.sin(phase)
    return u, v, jnp.broadcast_to((1 - decay**2) / 2, u.shape)


class CylinderTable(NamedTuple):
    """The result of `cylinder_table`, each the smallest and the largest published value.

    Attributes:
        drag: The mean drag over half of the density, the speed squared and the diameter, for a unit of length.
        strouhal: The number of pairs of vortices in the time in which the fluid goes a diameter; None if the flow is
            steady.
    """

    drag: tuple[float, float]
    strouhal: tuple[float, float] | None


_PUBLISHED = {20: CylinderTable((2.00, 2.05), None), 100: CylinderTable((1.32, 1.36), (0.163, 0.167))}


def cylinder_table(reynolds: int = 100) -> CylinderTable:
    """Returns published values for a cylinder across a wide stream.

    Walls, or a box that is narrow or short, raise the drag.

    Args:
        reynolds: The Reynolds number by the diameter: 20, with two steady vortices behind it, or 100, with vortex
            shedding.

    Raises:
        ValueError: If it is another.

    Source:
        S. C. R. Dennis, G.-Z. Chang, J. Fluid Mech. 42:471, 1970, and B. Fornberg, J. Fluid Mech. 98:819, 1980, for 20;
        C. H. K. Williamson, J. Fluid Mech. 206:579, 1989, and O. Posdziech, R. Grundmann, J. Fluids Struct. 23:479,
        2007, for 100.

    Example:
        ```python
        from sciml import verify

        low, high = verify.reference("cylinder_table", 20).drag
        assert 2.0 <= low < high < 2.1 and verify.reference("cylinder_table", 20).strouhal is None
        ```
    """
    if reynolds not in _PUBLISHED:
        raise ValueError(f"`cylinder_table(reynolds=...)` must be one of {sorted(_PUBLISHED)}, but is {reynolds!r}.")
    return _PUBLISHED[reynolds]


_PLACES = (
    (1.0, 0.9766, 0.9688, 0.9609, 0.9531, 0.8516, 0.7344, 0.6172, 0.5, 0.4531, 0.2813, 0.1719, 0.1016, 0.0703, 0.0625,
     0.0547, 0.0),
    (1.0, 0.9688, 0.9609, 0.9531, 0.9453, 0.9063, 0.8594, 0.8047, 0.5, 0.2344, 0.2266, 0.1563, 0.0938, 0.0781, 0.0703,
     0.0625, 0.0),
)  # fmt: skip
_VELOCITIES = {
    100: (
        (1.0, 0.84123, 0.78871, 0.73722, 0.68717, 0.23151, 0.00332, -0.13641, -0.20581, -0.21090, -0.15662, -0.10150,
         -0.06434, -0.04775, -0.04192, -0.03717, 0.0),
        (0.0, -0.05906, -0.07391, -0.08864, -0.10313, -0.16914, -0.22445, -0.24533, 0.05454, 0.17527, 0.17507, 0.16077,
         0.12317, 0.10890, 0.10091, 0.09233, 0.0),
    ),
    1000: (
        (1.0, 0.65928, 0.57492, 0.51117, 0.46604, 0.33304, 0.18719, 0.05702, -0.06080, -0.10648, -0.27805, -0.38289,
         -0.29730, -0.22220, -0.20196, -0.18109, 0.0),
        (0.0, -0.21388, -0.27669, -0.33714, -0.39188, -0.51550, -0.42665, -0.31966, 0.02526, 0.32235, 0.33075, 0.37095,
         0.32627, 0.30353, 0.29012, 0.27485, 0.0),
    ),
}  # fmt: skip


class CavityTable(NamedTuple):
    """The result of `cavity_table`.

    Attributes:
        y: Heights, from the lid down.
        u: The velocity along the lid at `x = 0.5` and these heights.
        x: Places, from the right.
        v: The velocity across the lid at `y = 0.5` and these places.
    """

    y: np.ndarray
    u: np.ndarray
    x: np.ndarray
    v: np.ndarray


def cavity_table(reynolds: int = 100) -> CavityTable:
    """Returns the velocities on the centre lines of a square of length 1 whose lid moves with the velocity 1.

    They are of multigrid on 129 by 129 points. At a Reynolds number of 1000 spectral solutions (O. Botella, R. Peyret,
    Computers & Fluids 27:421, 1998) differ from them by up to 0.0185, so that no comparison closer than 0.02 means
    anything there.

    Args:
        reynolds: The Reynolds number, the inverse of the viscosity: 100 or 1000.

    Raises:
        ValueError: If it is another.

    Source:
        U. Ghia, K. N. Ghia, C. T. Shin, J. Comput. Phys. 48:387, 1982, tables I and II.

    Example:
        ```python
        from sciml import verify

        table = verify.reference("cavity_table", 100)
        assert table.u[0] == 1.0 and table.u.min() == -0.2109 and table.y[8] == 0.5
        ```
    """
    if reynolds not in _VELOCITIES:
        raise ValueError(f"`cavity_table(reynolds=...)` must be one of {sorted(_VELOCITIES)}, but is {reynolds!r}.")
    (y, x), (u, v) = _PLACES, _VELOCITIES[reynolds]
    return CavityTable(np.array(y), np.array(u), np.array(x), np.array(v))


def poiseuille(
    y: Float[Array, "..."],
    *,
    slope: float | Array = 1.0,
    viscosity: float | Array = 1.0,
    height: float | Array = 1.0,
) -> Float[Array, "..."]:
    r"""Returns the velocity between two plates at rest that pressure drives, $\tfrac{G}{2 \nu} y (h - y)$.

    Args:
        y: The distance from the lower plate.
        slope: $G$, by how much the pressure over the density falls in a unit of length: an acceleration.
        viscosity: $\nu$.
        height: $h$, the distance of the plates.

    Source:
        G. K. Batchelor, An Introduction to Fluid Dynamics, Cambridge, 1967, section 4.2.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        assert verify.reference("poiseuille", jnp.array(0.5), slope=8.0) == 1.0
        ```
    """
    slope, viscosity, height = (jnp.asarray(value, y.dtype) for value in (slope, viscosity, height))
    return slope / (2 * viscosity) * y * (height - y)


def couette(
    y: Float[Array, "..."],
    t: float | Array = math.inf,
    *,
    speed: float | Array = 1.0,
    viscosity: float | Array = 1.0,
    height: float | Array = 1.0,
    terms: int = 200,
) -> Float[Array, "..."]:
    r"""Returns the velocity between two plates, of which the upper one starts to move at $t = 0$.

    $$u = U \frac{y}{h} + \frac{2 U}{\pi} \sum_{n=1}^\infty \frac{(-1)^n}{n} e^{-n^2 \pi^2 \nu t / h^2}
      \sin \frac{n \pi y}{h}$$

    Args:
        y: The distance from the plate at rest.
        t: The time; by default the flow that has become steady, $U y / h$.
        speed: $U$, of the upper plate.
        viscosity: $\nu$.
        height: $h$, the distance of the plates.
        terms: How many terms of the series; 200 are exact to rounding for $\nu t > 10^{-4} h^2$.

    Source:
        G. K. Batchelor, An Introduction to Fluid Dynamics, Cambridge, 1967, section 4.3.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        y = jnp.linspace(0.0, 1.0, 5)
        assert jnp.allclose(verify.reference("couette", y, 1e-3)[:4], 0.0, atol=1e-6)  # nothing has come that far
        assert jnp.allclose(verify.reference("couette", y, 10.0), verify.reference("couette", y))
        ```
    """
    speed, viscosity, height, t = (jnp.asarray(value, y.dtype) for value in (speed, viscosity, height, t))
    n = np.arange(1, terms + 1)
    numbers = jnp.asarray(n.reshape(-1, *(1,) * y.ndim), y.dtype)
    signs = jnp.asarray(((-1.0) ** n / n).reshape(numbers.shape), y.dtype)
    share = (y / height)[None]
    decays = jnp.exp(-((numbers * math.pi / height) ** 2) * viscosity * t)
    return speed * (share[0] + 2 / math.pi * jnp.sum(signs * decays * jnp.sin(numbers * math.pi * share), axis=0))
