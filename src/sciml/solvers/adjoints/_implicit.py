"""`Implicit`: derivatives of a steady state by one linear solve."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._checkpoint_levels import NOTHING
from ..._jax._vma import promote
from ..._status import Status
from ..._types import Y
from ..control._pid import Tolerances
from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result
from ..roots._conserved import check_conserved, conserved_quantities
from ..roots._implicit_root import steady_root
from . import _discrete_rule
from ._abstract import AbstractAdjoint


class Implicit(AbstractAdjoint):
    r"""Derivatives of a steady state, for a solve that runs until nothing moves any more.

    At the end $f(t_1, y_1, p) = 0$, however it was reached, and so

    $$\frac{\partial f}{\partial y} \, dy_1 = - \frac{\partial f}{\partial p} \, dp .$$

    Forward mode solves this system once, and reverse mode its transpose: the cost of a gradient does not depend on the
    number of steps and, except for one product, not on the number of parameters. Forward and reverse mode go through it
    in any order. The end state does not depend on `t0` and `t1`, whose derivatives are zero, and on `y0` only through
    conserved quantities. Linear ones are found as by `sciml.steady_state`; others are given as `conserved`.

    The derivatives are NaN if the end state is not steady: if the remaining Newton step,
    $(\partial f / \partial y)^{-1} f$, is longer than the tolerances. If the Jacobian is singular although conserved
    quantities are held, they are NaN and the status is `undetermined`.

    The matrix of the system is factorised, so a state of $n$ elements takes memory for $n^2$. Real states to the end
    time, no `saveat`. If only the steady state is needed and not the transient, `sciml.steady_state` finds it faster.

    Attributes:
        rtol: The length of the Newton step that counts as steady, relative to the state.
        atol: The same, absolute.
        conserved: A function `conserved(y)` that returns an array of conserved quantities; by default the linear ones
            are found.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def level(rate):
            tank = lambda t, y, args: 1.0 - rate * y
            return sciml.solve(tank, jnp.zeros(()), t0=0.0, t1=40.0, adjoint=sciml.adjoints.Implicit()).ys[-1]

        assert abs(float(jax.grad(level)(jnp.array(0.5))) + 4.0) < 1e-2  # the level is 1 / rate
        ```
    """

    rtol: float = eqx.field(static=True, default=1e-2)
    atol: float = eqx.field(static=True, default=1e-4)
    conserved: Callable[[Y], Array] | None = eqx.field(static=True, default=None)

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop, and gives its end state the derivatives of a steady state."""
        if operands.saves is not None:
            raise ValueError(
                "`adjoint=Implicit()` only differentiates the steady state at the end. Leave out `saveat`, or use "
                "`sciml.adjoints.Checkpointed()`."
            )
        if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(y0)):
            raise TypeError(
                "`adjoint=Implicit()` needs a real state, but `y0` has a complex leaf. Solve for its real and "
                "imaginary parts."
            )
        check_conserved(self.conserved, y0)
        y0, operands = promote((y0, operands))
        # no derivative goes through the loop, so it records nothing
        result = _discrete_rule.run(loop, *jax.lax.stop_gradient((y0, operands)), differentiate_times, NOTHING)
        integrator = loop.integrator
        field, end = integrator.bound(operands), jax.lax.stop_gradient(integrator.time(operands.span, operands))
        tolerances = Tolerances(*(jnp.asarray(x, operands.t0.dtype) for x in (self.rtol, self.atol)))
        quantities = conserved_quantities(lambda y: field(end, y), y0, self.conserved)
        root = steady_root(lambda y: field(end, y), result.ys, y0, quantities, tolerances)
        lost = (result.status == int(Status.successful)) & root.close & ~root.determined
        return result._replace(ys=root.y, status=jnp.where(lost, int(Status.undetermined), result.status))
