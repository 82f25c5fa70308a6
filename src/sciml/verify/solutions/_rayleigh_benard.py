r"""When a layer of fluid that is heated from below begins to turn over.

In units of the depth of the layer and of the time in which heat diffuses through it, small disturbances
$e^{i k x + \sigma t}$ of the vertical velocity $W$ and the temperature $\Theta$ obey, with $D = d/dz$,

$$\tfrac{\sigma}{\mathrm{Pr}} (D^2 - k^2) W = (D^2 - k^2)^2 W - \mathrm{Ra}\, k^2\, \Theta, \qquad
  \sigma \Theta = W + (D^2 - k^2) \Theta.$$

Between rigid walls $W = DW = \Theta = 0$. Galerkin's method with Legendre polynomials times $(1 - s^2)^2$ and
$1 - s^2$, $s = 2 z - 1$, turns that into an eigenvalue problem; its error falls faster than any power of their number.
"""

import math

import numpy as np
from numpy.polynomial import Legendre

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
