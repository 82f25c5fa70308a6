r"""Media whose polarisation follows the field with a delay: equations in addition to Maxwell's.

A medium adds $\chi(\omega)$ to the permittivity, with $e^{-i \omega t}$; its current is $\partial_t P$ of the
polarisation $P$.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._parameters import Parameter, parameter, with_dtype


class AbstractDispersion(eqx.Module):
    """The contribution of a medium to the permittivity, as a function of the frequency, and its equation in time.

    The equation is linear, and of one place at a time: `current` and `rates` act on every value alike. Parameters are
    numbers, or arrays over the grid, which `Maxwell` averages to the positions of the fields: the strength is zero
    outside of the medium. A custom medium has these methods.
    """

    @abc.abstractmethod
    def susceptibility(self, omega: Any) -> Complex[Array, "..."]:
        r"""Returns $\chi(\omega)$, in units of the permittivity."""

    @abc.abstractmethod
    def rest(self, like: Float[Array, "..."]) -> Any:
        """Returns the memory of the medium at rest, for a component of the electric field."""

    @abc.abstractmethod
    def current(self, electric: Float[Array, "..."], memory: Any) -> Float[Array, "..."]:
        r"""Returns $\partial_t P$."""

    @abc.abstractmethod
    def rates(self, electric: Float[Array, "..."], memory: Any) -> Any:
        """Returns the rates of the memory."""

    @abc.abstractmethod
    def energy(self, memory: Any) -> Float[Array, "..."]:
        """Returns the energy per volume that the medium holds."""

    def settled(self, tau: Float[Array, ""], electric: Float[Array, "..."], right: Any) -> Any:
        r"""Returns the solution $m$ of $m = r + \tau\, \dot m(E, m)$, for steps that take the medium implicitly.

        By default the equations of the memory, few at every place, are solved by elimination.

        Args:
            tau: $\tau$.
            electric: $E$.
            right: $r$, like the memory.
        """
        leaves, structure = jax.tree.flatten(right)
        dtype = jnp.result_type(electric)
        zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)
        count = len(leaves)

        def rates(at: int | None) -> list[Array]:
            """The rates for one of what is remembered, or the field, that is one."""
            memory = jax.tree.unflatten(structure, [one if k == at else zero for k in range(count)])
            return jax.tree.leaves(self.rates(one if at is None else zero, memory))

        columns = [rates(k) for k in range(count)]
        matrix = [[(one if i == j else zero) - tau * columns[j][i] for j in range(count)] for i in range(count)]
        found = [r + tau * f * electric for r, f in zip(leaves, rates(None))]
        for k in range(count):  # without exchanges: as tau goes to zero the matrix goes to one
            for i in range(k + 1, count):
                factor = matrix[i][k] / matrix[k][k]
                matrix[i] = [a - factor * b for a, b in zip(matrix[i], matrix[k])]
                found[i] = found[i] - factor * found[k]
        for k in reversed(range(count)):
            for j in range(k + 1, count):
                found[k] = found[k] - matrix[k][j] * found[j]
            found[k] = found[k] / matrix[k][k]
        return jax.tree.unflatten(structure, found)

    @abc.abstractmethod
    def limits(self, permittivity: Float[Array, "..."]) -> tuple[Array, Array]:
        """Returns bounds on the squared frequency and on the damping that it brings, for stable steps."""


class Drude(AbstractDispersion):
    r"""Free electrons, as in a metal or a plasma.

    $$\dot J + \gamma J = \varepsilon_0 \omega_p^2 E, \qquad
      \chi = -\frac{\varepsilon_0 \omega_p^2}{\omega^2 + i \gamma \omega}$$

    Attributes:
        plasma: $\omega_p$, an angular frequency: a number, or an array over the grid.
        damping: $\gamma$, a rate.
        vacuum: $\varepsilon_0$, in the units of the permittivity of the model.

    Source:
        P. Drude, Ann. Phys. 306:566, 1900.

    Example:
        ```python
        from sciml.models import Drude

        assert Drude(plasma=2.0).susceptibility(2.0).real == -1.0  # of the permittivity nothing is left
        ```
    """

    plasma: Parameter = eqx.field(converter=parameter)
    damping: Parameter = eqx.field(default=0.0, converter=parameter)
    vacuum: Parameter = eqx.field(default=1.0, converter=parameter)

    def susceptibility(self, omega: Any) -> Complex[Array, "..."]:
        r"""Returns $\chi(\omega)$."""
        p, w = _with(self, omega)
        return -_over_complex(p.vacuum * p.plasma**2, w**2, p.damping * w)

    def rest(self, like: Float[Array, "..."]) -> tuple[Array, ...]:
        """Returns a current of zero."""
        return (jnp.zeros_like(like),)

    def current(self, electric: Float[Array, "..."], memory: tuple[Array, ...]) -> Float[Array, "..."]:
        """Returns the current."""
        return memory[0]

    def rates(self, electric: Float[Array, "..."], memory: tuple[Array, ...]) -> tuple[Array, ...]:
        """Returns the rate of the current."""
        return (self.vacuum * self.plasma**2 * electric - self.damping * memory[0],)

    def energy(self, memory: tuple[Array, ...]) -> Float[Array, "..."]:
        r"""Returns $J^2 / 2 \varepsilon_0 \omega_p^2$, the kinetic energy."""
        return _over(memory[0] ** 2, 2 * self.vacuum * self.plasma**2)

    def limits(self, permittivity: Float[Array, "..."]) -> tuple[Array, Array]:
        r"""Returns $\omega_p^2$ and $\gamma$."""
        return jnp.max(self.vacuum * self.plasma**2 / permittivity), jnp.max(self.damping)


class Lorentz(AbstractDispersion):
    r"""Bound electrons, which resonate.

    $$\ddot P + \gamma \dot P + \omega_0^2 P = \Delta\varepsilon\, \omega_0^2 E, \qquad
      \chi = \frac{\Delta\varepsilon\, \omega_0^2}{\omega_0^2 - \omega^2 - i \gamma \omega}$$

    Attributes:
        strength: $\Delta\varepsilon$, its contribution to the permittivity of constant fields: a number, or an array
            over the grid.
        frequency: $\omega_0$, an angular frequency.
        damping: $\gamma$, a rate.

    Source:
        H. A. Lorentz, The Theory of Electrons, Teubner, 1909.

    Example:
        ```python
        from sciml.models import Lorentz

        assert Lorentz(strength=1.5, frequency=2.0).susceptibility(0.0).real == 1.5
        ```
    """

    strength: Parameter = eqx.field(converter=parameter)
    frequency: Parameter = eqx.field(converter=parameter)
    damping: Parameter = eqx.field(default=0.0, converter=parameter)

    def susceptibility(self, omega: Any) -> Complex[Array, "..."]:
        r"""Returns $\chi(\omega)$."""
        p, w = _with(self, omega)
        return _over_complex(p.strength * p.frequency**2, p.frequency**2 - w**2, -p.damping * w)

    def rest(self, like: Float[Array, "..."]) -> tuple[Array, ...]:
        """Returns a polarisation and a current of zero."""
        return jnp.zeros_like(like), jnp.zeros_like(like)

    def current(self, electric: Float[Array, "..."], memory: tuple[Array, ...]) -> Float[Array, "..."]:
        """Returns the current."""
        return memory[1]

    def rates(self, electric: Float[Array, "..."], memory: tuple[Array, ...]) -> tuple[Array, ...]:
        """Returns the rates of polarisation and current."""
        polarization, current = memory
        return current, self.frequency**2 * (self.strength * electric - polarization) - self.damping * current

    def energy(self, memory: tuple[Array, ...]) -> Float[Array, "..."]:
        r"""Returns $(J^2 + \omega_0^2 P^2) / 2 \Delta\varepsilon\, \omega_0^2$."""
        polarization, current = memory
        held = current**2 + (self.frequency * polarization) ** 2
        return _over(held, 2 * self.strength * self.frequency**2)

    def limits(self, permittivity: Float[Array, "..."]) -> tuple[Array, Array]:
        r"""Returns $\omega_0^2 (1 + \Delta\varepsilon / \varepsilon)$ and $\gamma$."""
        return jnp.max(self.frequency**2 * (1 + self.strength / permittivity)), jnp.max(self.damping)


class Debye(AbstractDispersion):
    r"""Rotating molecules, such as water.

    $$\tau \dot P + P = \Delta\varepsilon\, E, \qquad \chi = \frac{\Delta\varepsilon}{1 - i \omega \tau}$$

    Attributes:
        strength: $\Delta\varepsilon$, its contribution to the permittivity of constant fields: a number, or an array
            over the grid.
        relaxation: $\tau$, a time.

    Source:
        P. Debye, Polar Molecules, Chemical Catalog Company, 1929.

    Example:
        ```python
        from sciml.models import Debye

        assert abs(Debye(strength=2.0, relaxation=0.5).susceptibility(2.0) - (1.0 + 1.0j)) < 1e-6
        ```
    """

    strength: Parameter = eqx.field(converter=parameter)
    relaxation: Parameter = eqx.field(converter=parameter)

    def susceptibility(self, omega: Any) -> Complex[Array, "..."]:
        r"""Returns $\chi(\omega)$."""
        p, w = _with(self, omega)
        return _over_complex(p.strength, jnp.ones_like(w), -w * p.relaxation)

    def rest(self, like: Float[Array, "..."]) -> tuple[Array, ...]:
        """Returns a polarisation of zero."""
        return (jnp.zeros_like(like),)

    def current(self, electric: Float[Array, "..."], memory: tuple[Array, ...]) -> Float[Array, "..."]:
        """Returns the current, the rate of the polarisation."""
        return (self.strength * electric - memory[0]) / self.relaxation

    def rates(self, electric: Float[Array, "..."], memory: tuple[Array, ...]) -> tuple[Array, ...]:
        """Returns the rate of the polarisation."""
        return (self.current(electric, memory),)

    def energy(self, memory: tuple[Array, ...]) -> Float[Array, "..."]:
        r"""Returns $P^2 / 2 \Delta\varepsilon$."""
        return _over(memory[0] ** 2, 2 * self.strength)

    def limits(self, permittivity: Float[Array, "..."]) -> tuple[Array, Array]:
        r"""Returns zero and $(1 + \Delta\varepsilon / \varepsilon) / \tau$."""
        rate = jnp.max((1 + self.strength / permittivity) / self.relaxation)
        return jnp.zeros_like(rate), rate


def _with(medium: Any, omega: Any) -> tuple[Any, Array]:
    """A medium and a frequency in one precision."""
    omega = jnp.asarray(omega)
    omega = omega if jnp.issubdtype(omega.dtype, jnp.floating) else omega.astype(jnp.result_type(float))
    return jax.tree.map(lambda x: jnp.asarray(x, omega.dtype), with_dtype(medium, omega.dtype)), omega


def _over_complex(value: Array, real: Array, imaginary: Array) -> Array:
    """A real number over a complex one."""
    below = jax.lax.complex(*jnp.broadcast_arrays(real, imaginary))
    return value.astype(below.dtype) / below


def _over(energy: Array, strength: Array) -> Array:
    """An energy over a strength, zero where there is no medium."""
    strength = jnp.asarray(strength, energy.dtype)
    there = strength != 0
    return jnp.where(there, energy / jnp.where(there, strength, jnp.ones_like(strength)), jnp.zeros_like(energy))


def check_medium(medium: Any, grid_shape: tuple[int, ...]) -> AbstractDispersion:
    """Returns a medium whose parameters are numbers or fields.

    Raises:
        TypeError: If it is not a known value.
        ValueError: If a parameter has another shape.
    """
    if not isinstance(medium, AbstractDispersion):
        raise TypeError(
            "`Maxwell(media=...)` must be a list of `Drude`, `Lorentz`, `Debye` or another `AbstractDispersion`, but "
            f"contains {medium!r}."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(medium):
        if jnp.ndim(leaf) and jnp.shape(leaf) != grid_shape:
            raise ValueError(
                f"`{type(medium).__name__}{jax.tree_util.keystr(path)}` must be a number or an array over the grid "
                f"{grid_shape}, but has shape {jnp.shape(leaf)}."
            )
    return medium
