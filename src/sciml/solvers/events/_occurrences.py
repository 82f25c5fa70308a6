"""`Occurrences`: what a solution says of the events that happened."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Real

from ..._checks import concrete
from ._event_state import EventMemory, EventRecord

_SHOWN = 20


class Occurrences(eqx.Module):
    """The events of a solution, the first `max_events` of them in their order in time.

    Rows beyond `count` are NaN, and `which` is -1 there. Times and states can be differentiated.
    `print(sol.events)` shows how many there were, when, and which.

    Attributes:
        times: When they happened, of shape `(max_events,)`.
        states_before: The states before them: like `y0`, with the events first on every leaf.
        states_after: The states after them.
        which: The index of each event.
        grazing: Whether the condition of each only grazed zero: a change of the state by a millionth of its size (in
            float32 a few ten thousandths) would make the event vanish. Then its time has no derivative, nor has
            anything after it, and the gradients of both are meaningless.
        count: How many happened, those that are not kept included.
        rates_before: The rates just before them, which continuous adjoints read; None elsewhere.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        quarter = sciml.Event(lambda t, y, args: y[0])
        rotation = lambda t, y, args: jnp.stack([-y[1], y[0]])
        sol = sciml.solve(rotation, jnp.array([1.0, 0.0]), t0=0.0, t1=9.0, events=quarter)
        assert sol.status == sciml.Status.event
        assert abs(sol.events.times[0] - jnp.pi / 2) < 1e-3
        assert sol.events.states_before.shape == (1, 2)
        ```
    """

    times: Real[Array, "*members events"]
    states_before: PyTree
    states_after: PyTree
    which: Int[Array, "*members events"]
    grazing: Bool[Array, "*members events"]
    count: Int[Array, "*members"]
    rates_before: PyTree = None

    def __str__(self) -> str:
        if not all(map(concrete, (self.times, self.which, self.grazing, self.count))):
            return repr(self)
        count, times, which, grazing = map(np.asarray, (self.count, self.times, self.which, self.grazing))
        if count.ndim:
            least, most = (count.min(), count.max()) if count.size else (0, 0)
            return f"{count.sum()} events of {count.size} members, {least} to {most} each"
        happened, kept = int(count), min(int(count), len(times))
        lines = [f"{happened} event{'' if happened == 1 else 's'}"]
        if kept < happened:
            lines[0] += f", the first {kept} of which are kept"
        for i in range(min(kept, _SHOWN)):
            lines.append(f"  t={times[i]:.7g}  event {which[i]}{', grazing' * bool(grazing[i])}")
        return "\n".join([*lines, "  ..."] if kept > _SHOWN else lines)

    @classmethod
    def of(cls, memory: EventMemory) -> "Occurrences":
        """Returns the record of one member."""
        record, count = memory.record, memory.detection.count
        assert isinstance(record, EventRecord)  # between steps
        there = jnp.arange(record.times.shape[0], dtype=count.dtype) < jax.lax.stop_gradient(count)

        def kept(x: Array) -> Array:
            return jnp.where(there.reshape(there.shape + (1,) * (x.ndim - 1)), x, jnp.full_like(x, jnp.nan))

        number = jax.lax.stop_gradient(record.which)
        which = jnp.where(there, jnp.floor(number), -1).astype(jnp.int32)
        grazing = there & (number != jnp.floor(number))
        before, after, rates = jax.tree.map(kept, (record.before, record.after, record.rates))
        return cls(kept(record.times), before, after, which, grazing, count.astype(jnp.int32), rates)
