"""What models with diffusion share: it is their stiff part, by which implicit and exponential methods run."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from ..._interfaces._model import AbstractSemilinear, AbstractSplit
from ..._types import Args, RealScalarLike
from ...spatial import ImplicitDiffusion, Laplacian
from ...spatial._implicit import of_component


class AbstractDiffusing(AbstractSplit):
    r"""A model $\partial_t u = \nabla \cdot (D \nabla u) + \dots$ of fields, with diffusion as its stiff part.

    Its systems are solved by `sciml.spatial.ImplicitDiffusion`. Values at the walls belong to the rest. Where it
    separates, exponential methods run in its modes.

    Attributes:
        laplacian: The operator, with the boundary conditions.
    """

    laplacian: eqx.AbstractVar[Laplacian]

    @abc.abstractmethod
    def diffusions(self) -> tuple[Array, ...] | Array:
        """Returns $D$: a number, a field or a tensor for all; or a tuple of numbers, one for each component."""

    def stiff(self, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the diffusion with zero at the walls."""
        del args
        d = self.diffusions()
        if not isinstance(d, tuple):
            return ImplicitDiffusion(self.laplacian, d)(y)
        factors = jnp.stack([x.astype(y.dtype) for x in d]).reshape(-1, *(1,) * self.laplacian.grid.ndim)
        return factors * ImplicitDiffusion(self.laplacian, 1.0)(y)

    def rest(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns everything else."""
        return self(t, y, args) - self.stiff(y, args)

    def solve_shifted(self, shift: RealScalarLike, right: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        r"""Returns the solution of $(1 - \tau \nabla \cdot D \nabla) y = r$."""
        del args
        d = self.diffusions()
        if not isinstance(d, tuple):
            return ImplicitDiffusion(self.laplacian, d).solve(shift, right)
        own = [ImplicitDiffusion(of_component(self.laplacian, i), x) for i, x in enumerate(d)]
        return jnp.stack([one.solve(shift, r) for one, r in zip(own, right)])

    def modal(self, y: Float[Array, "..."]) -> AbstractSemilinear | None:
        """Returns the model in the modes of diffusion; None where these have no transform."""
        d = self.diffusions()
        first = ImplicitDiffusion(self.laplacian, d[0] if isinstance(d, tuple) else d)
        return InModes(self, y.ndim - self.laplacian.grid.ndim) if first.separable else None


class InModes(AbstractSemilinear):
    """A model with diffusion in the modes of that.

    Attributes:
        model: The model.
        lead: The number of the state's axes before those of the grid.
    """

    model: AbstractDiffusing
    lead: int = eqx.field(static=True)

    @property
    def _one(self) -> ImplicitDiffusion:
        return ImplicitDiffusion(self.model.laplacian, 1.0)

    def transform(self, y: Float[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the coefficients of the state's fields."""
        return self._one.transform(y)

    def inverse(self, modes: Inexact[Array, "..."]) -> Float[Array, "..."]:
        """Returns the state of given coefficients."""
        return self._one.inverse(modes)

    def linear(self, args: Args) -> Float[Array, "..."]:
        """Returns the eigenvalues of diffusion."""
        del args
        d, values = self.model.diffusions(), self._one.eigenvalues()
        values = values.reshape((1,) * self.lead + values.shape)
        if not isinstance(d, tuple):
            return d.astype(values.dtype) * values
        return jnp.stack([x.astype(values.dtype) for x in d]).reshape(-1, *(1,) * (values.ndim - 1)) * values

    def rest(self, t: RealScalarLike, modes: Inexact[Array, "..."], args: Args) -> Inexact[Array, "..."]:
        """Returns the coefficients of the rest."""
        return self.transform(self.model.rest(t, self.inverse(modes), args))
