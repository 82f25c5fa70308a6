"""The rates of change at one cell, for a model that is a stencil."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._ghost_weights import NotForKernelsError
from ._update import Fields, StencilUpdate


class StencilRates(eqx.Module):
    r"""A vector field whose every cell looks at its neighbours, $\dot u_i = f(u_{i + s} : s \in S;\ p)$.

    A model returns it from a method `stencil(y)`, and `sciml.solve` and `sciml.simulate` make of it the steps of
    explicit methods as updates for kernels. It must agree with the model's `__call__`, at any time and with any `args`;
    `sciml.verify.check_model` compares the two. Models without such a form raise `NotForKernelsError` with the reason.

    Attributes:
        fn: `fn(nb, params) -> rates`, written for one cell like the function of a `StencilUpdate`. It returns an array
            for one field, else a tuple in the order of `fields` or a mapping by their names.
        fields: The names of the fields.
        params: The second argument of `fn`, a PyTree of numbers.
        radius: How many cells away along each axis `fn` reads.
        boundary: As for a `StencilUpdate`: one for all fields, or a mapping from every field to its own. Without it all
            axes are periodic, also if the model has walls.
        coefficients: Fields that `fn` reads and that do not change, by name.
        accuracy: The order of the error of the ghost values at walls.
        split: Returns the fields of a state, a tuple of arrays over the grid; by default the leaves of the state, or
            the parts of its only leaf along its first axis.
        join: `join(fields, y)` returns them as a state like `y`; the inverse of `split`.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml
        from sciml.kernels import stencil
        from sciml.spatial import Grid, Laplacian, Periodic

        class Heat(sciml.AbstractModel):
            laplacian: Laplacian

            def __call__(self, t, y, args):
                return self.laplacian(y, t=t, args=args)

            def stencil(self, y):
                def rate(nb, params):
                    return self.laplacian.cell(nb, "u")

                return stencil.StencilRates(rate, fields=("u",), boundary=self.laplacian.boundary)

        model = Heat(Laplacian(Grid((32, 32)), Periodic()))
        u = jnp.zeros((32, 32)).at[16, 16].set(1.0)
        how = dict(t0=0.0, t1=1e-3, dt=1e-4, solver=diffrax.Euler())
        with sciml.kernels.use("pallas", interpret=True):
            by_kernel = sciml.solve(model, u, **how)
        assert jnp.allclose(by_kernel.ys, sciml.solve(model, u, **how).ys, atol=1e-6)
        ```
    """

    fn: Callable
    fields: tuple[str, ...] = eqx.field(static=True)
    params: PyTree = None
    radius: int = eqx.field(static=True, default=1)
    boundary: Any = None
    coefficients: Mapping[str, Array] = eqx.field(default_factory=dict)
    accuracy: int = eqx.field(static=True, default=2)
    split: Callable[[PyTree], Fields] | None = eqx.field(static=True, default=None)
    join: Callable[[Fields, PyTree], PyTree] | None = eqx.field(static=True, default=None)

    def fields_of(self, y: PyTree) -> Fields:
        """Returns the fields of a state."""
        if self.split is not None:
            return tuple(self.split(y))
        leaves = jax.tree.leaves(y)
        if len(leaves) == len(self.fields):
            return tuple(leaves)
        (one,) = leaves
        return tuple(one[i] for i in range(len(self.fields)))

    def state_of(self, fields: Fields, y: PyTree) -> PyTree:
        """Returns fields as a state like another."""
        if self.join is not None:
            return self.join(fields, y)
        structure = jax.tree.structure(y)
        if structure.num_leaves == len(self.fields):
            return jax.tree.unflatten(structure, fields)
        return jax.tree.unflatten(structure, [jnp.stack(fields)])


def rates_of(model: Any, y: PyTree) -> StencilRates:
    """Returns the rates of a model at one cell, as a kernel computes them.

    Raises:
        NotForKernelsError: If the model has no such form at this state.
    """
    rates = model.stencil(y)
    if any(map(callable, jax.tree.leaves(rates.boundary))):
        raise NotForKernelsError("a boundary value is a function of time")
    return rates


def update_by(rates: StencilRates, fn: Any, inner: tuple[str, ...] = ()) -> StencilUpdate:
    """Returns an update by `fn`, with the fields and boundaries of the rates; by `rates.fn` it returns these."""
    rest = {"fields": rates.fields, "radius": rates.radius, "boundary": rates.boundary, "accuracy": rates.accuracy}
    return StencilUpdate(fn, coefficients=tuple(rates.coefficients), inner=inner, **rest)
