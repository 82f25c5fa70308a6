"""Interfaces that a model may implement: solvers read these types, models implement them."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .._jax._vma import promote
from .._types import Args, RealScalarLike, Y


class AbstractModel(eqx.Module):
    r"""A vector field $\dot y = f(t, y)$ whose parameters are its leaves.

    A model is a callable PyTree. Because its parameters are leaves, `jax.grad` with respect to
    the model, `jax.vmap` over models and a sweep over parameters need no further interface. A
    plain function `f(t, y, args)` is accepted everywhere that a model is.

    A class variable `stiff = True` declares that stability requires much shorter steps of explicit methods than
    accuracy: `sciml.solve` takes an implicit one then, unless it is given a method.

    A model may have two more methods, from which `sciml.solve` derives stable steps of explicit methods:
    `spectrum(t, y, args)` returns the eigenvalues of $\partial f / \partial y$ that limit a step, an array, real or
    complex, where others may lie between zero and these; `spectral_radius(t, y, args)` returns the largest modulus, for
    `sciml.solvers.RKC2` and `sciml.solvers.RKL2`. A third, `stencil(y)`, gives the right-hand side at one cell of a
    grid, for kernels: see `sciml.kernels.stencil.StencilRates`.

    A model whose state is one array of positions and then velocities may have a method `acceleration(t, q, args)`, for
    symplectic methods (`sciml.solvers.VelocityVerlet`), and with it `friction(args)`, the rate $c$ in
    $\dot v = a(t, q) - c v$.

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


class AbstractSemilinear(AbstractModel):
    r"""A model with a diagonal linear part in some modes, $\dot{\hat y} = L \hat y + N(t, \hat y)$.

    The modes $\hat y$ are coefficients of the state, such as Fourier coefficients. Exponential methods
    (`sciml.solvers.ETDRK`) take $L$ exactly, however stiff it is, and stay in the modes from the first step to the
    last: a transform of every step would cost as much as half an evaluation of $N$.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Diffusion(sciml.AbstractSemilinear):
            rates: jnp.ndarray  # modes are independent of one another

            def transform(self, y):
                return y

            def inverse(self, modes):
                return modes

            def linear(self, args):
                return -self.rates

            def rest(self, t, modes, args):
                return jnp.zeros_like(modes)

        model = Diffusion(jnp.array([1.0, 1e3]))
        sol = sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, dt=0.5, solver=sciml.solvers.ETDRK(order=4))
        assert jnp.allclose(sol.ys[-1], jnp.exp(-model.rates))
        ```
    """

    @abc.abstractmethod
    def transform(self, y: Y) -> PyTree:
        r"""Returns the modes $\hat y$ of a state, an array or a PyTree of arrays; linear."""

    @abc.abstractmethod
    def inverse(self, modes: PyTree) -> Y:
        """Returns the state of given modes; linear, and the inverse of `transform` on what that returns."""

    @abc.abstractmethod
    def linear(self, args: Args) -> PyTree:
        """Returns $L$, real or complex: a PyTree like the modes, of arrays that broadcast to theirs."""

    @abc.abstractmethod
    def rest(self, t: RealScalarLike, modes: PyTree, args: Args) -> PyTree:
        r"""Returns $N(t, \hat y)$, a PyTree like the modes."""

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the time derivative of the state, through the modes."""
        modes = self.transform(y)
        slope = jax.tree.map(_plus_product, self.rest(t, modes, args), self.linear(args), modes)
        return self.inverse(slope)


class AbstractSplit(AbstractModel):
    r"""A model with a stiff linear part, $\dot y = A y + N(t, y)$, in which one can solve.

    Implicit-explicit methods (`sciml.solvers.ARK`) take $A$ implicitly and $N$ explicitly. They need $A y$ and
    solutions of $(1 - \tau A) y = r$, which a model computes in the fastest way for its structure: a transform, a
    banded solve, multigrid. By default `solve_shifted` factorises $1 - \tau A$ as a dense matrix.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Reaction(sciml.AbstractSplit):
            rates: jnp.ndarray

            def stiff(self, y, args):
                return -self.rates * y

            def rest(self, t, y, args):
                return y * (1 - y)

            def solve_shifted(self, shift, right, args):
                return right / (1 + shift * self.rates)

        model = Reaction(jnp.array([1.0, 1e5]))
        sol = sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, dt=0.01, solver=sciml.solvers.ARK(order=3))
        assert abs(float(sol.ys[-1, 0]) - 0.5) < 1e-5  # y' = -y**2
        ```
    """

    @property
    def iterates(self) -> bool:
        """Whether `solve_shifted` is an iteration over a field, and the model a diffusion with `spectral_radius`.

        A stabilised method is then the default: it compiles faster than the iteration, and usually runs faster.
        """
        return False

    @abc.abstractmethod
    def stiff(self, y: Y, args: Args) -> Y:
        """Returns $A y$, linear in `y` but for a constant, such as the inflow at walls."""

    @abc.abstractmethod
    def rest(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns $N(t, y)$, with the structure, shapes and dtypes of `y`."""

    def solve_shifted(self, shift: RealScalarLike, right: Y, args: Args) -> Y:
        r"""Returns the solution $y$ of $(1 - \tau A) y = r$, without the constant of `stiff`.

        Args:
            shift: $\tau$, the step size times a coefficient of the method.
            right: $r$, a state.
            args: As for the model.
        """
        flat, unravel = ravel_pytree(right)
        linear = jax.linearize(lambda y: self.stiff(y, args), jax.tree.map(jnp.zeros_like, right))[1]

        def shifted(vector: Array) -> Array:
            y = unravel(vector)
            moved = jax.tree.map(lambda x, a: x - jnp.asarray(shift, x.dtype) * a, y, linear(y))
            return ravel_pytree(moved)[0]

        # within `shard_map` unit vectors must vary as what they meet does; NaN in gives NaN out
        eye, flat, *_ = promote((jnp.eye(flat.size, dtype=flat.dtype), flat, shift, self, args))
        return unravel(jnp.linalg.solve(jax.vmap(shifted, out_axes=-1)(eye), flat))

    def modal(self, y: Y) -> AbstractSemilinear | None:
        """Returns the same model in modes in which $A$ is diagonal, for exponential methods; None if it has none.

        Args:
            y: A state, for its structure.
        """
        del y

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns $A y + N(t, y)$."""
        return jax.tree.map(jnp.add, self.stiff(y, args), self.rest(t, y, args))


class AbstractSecondOrder(AbstractModel):
    r"""A model of second order in time, $\ddot q = a(t, q)$, without friction.

    The state is the pair $(q, v)$ of position and velocity, two PyTrees of one structure.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Spring(sciml.AbstractSecondOrder):
            def acceleration(self, t, q, args):
                return -q

        start = (jnp.ones(1), jnp.zeros(1))
        solver = sciml.solvers.VelocityVerlet()
        sol = sciml.solve(Spring(), start, t0=0.0, t1=2 * jnp.pi, dt=jnp.pi / 100, solver=solver)
        assert abs(float(sol.ys[0][-1, 0]) - 1) < 1e-5
        ```
    """

    @abc.abstractmethod
    def acceleration(self, t: RealScalarLike, q: Y, args: Args) -> Y:
        """Returns $a(t, q)$, a PyTree like `q`."""

    def __call__(self, t: RealScalarLike, y: tuple[Y, Y], args: Args) -> tuple[Y, Y]:
        """Returns velocity and acceleration."""
        q, v = y
        return v, self.acceleration(t, q, args)


class AbstractPartitioned(AbstractModel):
    r"""A model of two halves that drive each other, as electric and magnetic fields do.

    $$\dot a = f(t, b) + A a, \qquad \dot b = g(t, a) + B b$$

    The state is any PyTree; the model defines which of its leaves are the first half $a$ and which the second $b$. It
    defines the rate of a half, $f$ or $g$, and the move of a half under a constant rate while the other half stays.
    `sciml.solvers.Leapfrog` then takes each once a step. Terms of a half in itself, such as friction, are part of its
    move. They are solved exactly, or by the implicit midpoint rule, so that friction does not limit the step and a move
    by $-h$ undoes a move by $h$.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        class Swing(sciml.AbstractPartitioned):  # the state is a pair: how far, and how fast
            def first_drive(self, t, y, args):
                return y[1]

            def second_drive(self, t, y, args):
                return -jnp.sin(y[0])

            def move_first(self, h, y, drive, args):
                return y[0] + h * drive, y[1]

            def move_second(self, h, y, drive, args):
                return y[0], y[1] + h * drive

        start = (jnp.array([2.0]), jnp.array([0.0]))
        sol = sciml.solve(Swing(), start, t0=0.0, t1=1000.0, dt=0.1)
        angle, rate = sol.ys
        assert sol.solver == "Leapfrog"
        assert abs(float(rate[0, 0] ** 2 / 2 - jnp.cos(angle[0, 0]) + jnp.cos(2.0))) < 0.01
        ```
    """

    @abc.abstractmethod
    def first_drive(self, t: RealScalarLike, y: Y, args: Args) -> PyTree:
        """Returns the rate of the first half at a time, a PyTree of arrays; it only reads the second half of `y`."""

    @abc.abstractmethod
    def second_drive(self, t: RealScalarLike, y: Y, args: Args) -> PyTree:
        """Returns the rate of the second half at a time; it only reads the first half of `y`."""

    @abc.abstractmethod
    def move_first(self, h: RealScalarLike, y: Y, drive: PyTree, args: Args) -> Y:
        """Returns a state after a time in which its first half moves under a constant drive.

        Args:
            h: The length of time, a scalar of the dtype of time; negative to go back.
            y: The state.
            drive: From `first_drive`.
            args: As for the model.
        """

    @abc.abstractmethod
    def move_second(self, h: RealScalarLike, y: Y, drive: PyTree, args: Args) -> Y:
        """Returns a state after a time in which its second half moves under a constant drive."""

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the time derivative of the state: the rates at which both moves begin."""
        zero = jnp.zeros((), jnp.result_type(float))

        def rate(move, drive):
            return jax.jvp(lambda h: move(h, y, drive, args), (zero,), (jnp.ones_like(zero),))[1]

        first = rate(self.move_first, self.first_drive(t, y, args))
        second = rate(self.move_second, self.second_drive(t, y, args))
        return jax.tree.map(jnp.add, first, second)


def _plus_product(rest, linear, modes):
    return rest + linear.astype(modes.dtype) * modes
