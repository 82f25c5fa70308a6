"""What a model may promise: solvers read these types, models implement them."""

import abc

import equinox as eqx

from ._types import Args, RealScalarLike, Y


class AbstractModel(eqx.Module):
    r"""A vector field $\dot y = f(t, y)$ whose parameters are its leaves.

    A model is a callable PyTree. Because its parameters are leaves, `jax.grad` with respect to
    the model, `jax.vmap` over models and a sweep over parameters need no further interface. A
    plain function `f(t, y, args)` is accepted everywhere that a model is.

    Example:
        ```python
        import equinox as eqx
        import jax.numpy as jnp
        import sciml

        class Decay(sciml.AbstractModel):
            rate: jnp.ndarray

            def __call__(self, t, y, args):
                return -self.rate * y

        sol = sciml.solve(Decay(jnp.array(2.0)), jnp.array([1.0]), t0=0.0, t1=1.0)
        assert abs(float(sol.ys[-1, 0]) - 0.1353353) < 1e-3
        ```
    """

    @abc.abstractmethod
    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        r"""Returns the time derivative of the state.

        Args:
            t: Time, a real scalar.
            y: The state, a PyTree of arrays.
            args: Whatever was given to `solve` as `args`.

        Returns:
            $\dot y$, with the structure, shapes and dtypes of `y`.
        """
