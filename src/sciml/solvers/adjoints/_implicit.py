"""`Implicit`: derivatives of a steady state by one linear solve."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._jax._checkpoint_levels import NOTHING
from ..._jax._vma import promote
from ..control._pid import Tolerances
from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result
from ..methods._implicit_root import implicit_root
from . import _discrete_rule
from ._abstract import AbstractAdjoint


class Implicit(AbstractAdjoint):
    r"""Derivatives of a steady state, for a solve that runs until nothing moves any more.

    At the end $f(t_1, y_1, p) = 0$, however it was reached, and so

    $$\frac{\partial f}{\partial y} \, dy_1 = - \frac{\partial f}{\partial p} \, dp .$$

    Forward mode solves this system and reverse mode its transpose, once: the cost of a gradient depends
    neither on the number of steps nor, but for one product, on that of the parameters. Forward
    and reverse mode go through it in any order. The end state does not depend on `y0`, `t0` and `t1`,
    whose derivatives are zero. So $\partial f / \partial y$ must be regular: where a sum is conserved,
    leave a component out and compute it from the others.

    The derivatives are NaN where the end state is not steady: where the Newton step that is left,
    $(\partial f / \partial y)^{-1} f$, is longer than the tolerances.

    The matrix of the system is factorised, so a state of $n$ elements takes memory for $n^2$. Real states to
    the end time, no `saveat`. Where only the steady state is wanted and not the transient,
    `sciml.steady_state` finds it faster.

    Attributes:
        rtol: The length of the Newton step that counts as steady, relative to the state.
        atol: The same, absolute.

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

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop, and gives its end state the derivatives of a steady state."""
        if operands.saves is not None:
            raise ValueError(
                "`adjoint=Implicit()` differentiates the steady state at the end and no other: leave out `saveat`, or "
                "use `sciml.adjoints.Checkpointed()`."
            )
        if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(y0)):
            raise TypeError(
                "`adjoint=Implicit()` needs a real state, but `y0` has a complex leaf. Solve for its real and "
                "imaginary parts."
            )
        y0, operands = promote((y0, operands))
        # no derivative goes through the loop, so it records nothing
        result = _discrete_rule.run(loop, *jax.lax.stop_gradient((y0, operands)), differentiate_times, NOTHING)
        integrator = loop.integrator
        field, end = integrator.bound(operands), jax.lax.stop_gradient(integrator.time(operands.span, operands))
        tolerances = Tolerances(*(jnp.asarray(x, operands.t0.dtype) for x in (self.rtol, self.atol)))
        return result._replace(ys=implicit_root(lambda y: field(end, y), result.ys, tolerances))
