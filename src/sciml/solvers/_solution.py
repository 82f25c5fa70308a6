"""The result of `solve`."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Real

from .._checks import concrete
from .._status import raise_for_status


class Stats(NamedTuple):
    """The cost of a solution, per member.

    Attributes:
        accepted: The number of accepted steps.
        rejected: The number of rejected steps, those that were taken again up to an event included.
        evaluations: The number of evaluations of the vector field, at most the largest 32-bit integer; -1 if the
            library that ran the solve does not report it, or the method or events make it differ from step to step.
        executed: The number of steps that the loop executed on the member's lane. Under `jax.vmap` these
            are more than its own, since members wait for one another; see `lane_efficiency`. Those with
            large states on a CPU do not, which run one after another.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        rates = jnp.logspace(0, 3, 64)
        solve = lambda rate: sciml.solve(lambda t, y, args: -rate * y, jnp.ones(1), t0=0.0, t1=1.0)
        stats = jax.vmap(solve)(rates).stats
        assert stats.accepted.shape == (64,)
        assert stats.lane_efficiency < 0.7  # the fast ones take more steps, and the others wait
        ```
    """

    accepted: Int[Array, "..."]
    rejected: Int[Array, "..."]
    evaluations: Int[Array, "..."]
    executed: Int[Array, "..."]

    @property
    def lane_efficiency(self) -> Float[Array, ""]:
        """The members' own steps over those executed on all lanes: 1 where no member waited for another."""
        own, executed = (jnp.sum(x.astype(float)) for x in (self.accepted + self.rejected, self.executed))
        return own / jnp.maximum(executed, 1)


class Solution(eqx.Module):
    """The solution of an initial value problem; under `jax.vmap`, one for each member.

    Attributes:
        ts: The saved times, of shape `(times,)`; a PyTree of such arrays if `diffrax.SaveAt(subs=...)` has several
            outputs.
        ys: The states at these times: like `y0`, with the times first on every leaf; or the results of the outputs.
        status: A code of `sciml.Status`.
        t_reached: The time up to which the solution is valid; `t1` if it was successful.
        stats: Steps and evaluations.
        solver: The name of the method that was used, which `sciml.solve` may have chosen.
        events: The events that fired, `Occurrences`; None without `events`. If an event ended the solve, later saved
            values are NaN, and the end state is the state at the event. The row that `diffrax.SaveAt(t1=True)` adds is
            also the end state, if `events` records that event.
        dense: The data for `evaluate`; None without `saveat=diffrax.SaveAt(dense=True)`.
        resume: The start of a solve with a later `t1`, a `Resume`; None without
            `saveat=diffrax.SaveAt(solver_state=True)`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        solve = lambda rate: sciml.solve(lambda t, y, args: -rate * y, jnp.ones(2), t0=0.0, t1=1.0)
        sol = jax.vmap(solve)(jnp.array([1.0, 2.0, 3.0]))
        assert sol.ys.shape == (3, 1, 2)  # members, times, state
        assert sol.status.shape == (3,)
        sol.raise_if_failed()
        ```
    """

    ts: PyTree[Real[Array, "..."]]
    ys: PyTree
    status: Int[Array, "*members"]
    t_reached: Real[Array, "*members"]
    stats: Stats
    solver: str = eqx.field(static=True, default="")
    events: Any = None
    dense: Any = None
    resume: Any = None

    def evaluate(self, t: Any) -> PyTree:
        """Returns the state at one time or many, where `saveat` was `diffrax.SaveAt(dense=True)`.

        The step that holds a time is taken once more, and the method interpolates within it. It can be differentiated
        by all that the solution depends on, and by `t`; at an event it is the state before it.

        Args:
            t: Times between the start and the end, of any shape; elsewhere, and where the solve did not get, the state
                is NaN.

        Returns:
            Like `y0`, with the shape of `t` first on every leaf.

        Raises:
            ValueError: If dense output was not requested, or there are members.

        Example:
            ```python
            import diffrax
            import jax
            import jax.numpy as jnp
            import sciml

            dense = diffrax.SaveAt(dense=True)
            sol = sciml.solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=3.0, saveat=dense)
            assert abs(sol.evaluate(1.5)[0] - jnp.exp(-1.5)) < 1e-3
            assert sol.evaluate(jnp.linspace(0.0, 3.0, 7)).shape == (7, 2)
            assert abs(sol.derivative(1.5)[0] + jnp.exp(-1.5)) < 1e-3
            ```
        """
        return self._dense_output().evaluate(t)

    def derivative(self, t: Any) -> PyTree:
        """Returns the rate, the vector field of the state, at one time or many; see `evaluate`."""
        return self._dense_output().derivative(t)

    def _dense_output(self) -> Any:
        if self.dense is None:
            raise ValueError(
                "This solution only holds its saved times. To evaluate it between them, solve with "
                "`saveat=diffrax.SaveAt(dense=True)`, which may be combined with `ts`, `t0` and `t1`."
            )
        return self.dense

    def raise_if_failed(self) -> "Solution":
        """Returns the solution, or raises one error with the number, the indices and the causes of failed members.

        Raises:
            SolveError: If any member failed.
            TypeError: If called while JAX traces, where nothing is known yet.
        """
        if not concrete(self.status):
            raise TypeError(
                "`Solution.raise_if_failed` needs concrete values but was called under `jax.jit`, `jax.vmap` or "
                "another transformation. Call it on the output of the transformed function."
            )
        raise_for_status(np.asarray(self.status), reached=np.asarray(self.t_reached))
        return self

    def plot(self, grid: Any = None, **options: Any) -> Any:
        """Draws the solution. Needs Matplotlib.

        Args:
            grid: The `sciml.spatial.Grid` of a state that is a field. One dimension is drawn over space and time, two
                at some times, three on planes; see `sciml.plot.space_time`, `frames` and `slices`. Without one, the
                components are drawn over time, see `sciml.plot.trajectory`: as lines, or very many as an image.
            options: Options of that function; all of them accept `labels`, `title`, `cmap`, `vmin` and `vmax`.
        """
        from .. import plot  # of a higher layer, so imported when called

        if grid is None:
            return plot.trajectory(self, **options)
        return (plot.space_time, plot.frames, plot.slices)[grid.ndim - 1](self, grid, **options)

    def animate(self, grid: Any, path: Any, **options: Any) -> Any:
        """Writes a film of a field in one or two dimensions to a file; see `sciml.plot.animate`."""
        from ..plot import animate  # of a higher layer, as above

        return animate(self, grid, path, **options)
