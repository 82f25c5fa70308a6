"""Retries of failed members."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx

from ._executable import takes, takes_any


def _as_attempts(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, Mapping) or callable(given) else tuple(given)


class Retry(eqx.Module):
    """Runs members that failed again, with other options; for `sweep(..., on_fail=...)`.

    After all members have run, the failed ones are gathered into new blocks and run with the first attempt; members
    that fail again run with the second, and so on. A member that succeeds takes the place of the one that failed, and
    all others keep their bits. `SweepResult.attempts` contains the number of runs of each.

    Attributes:
        attempts: For each attempt, a mapping of keyword arguments that the sweep's function gets in addition, or a
            function to run in its place, with the same arguments. A single attempt needs no list.

    Raises:
        ValueError: If there is no attempt.
        TypeError: If an attempt is neither a function nor a mapping with names as keys.

    Example:
        ```python
        import jax.numpy as jnp
        import numpy as np
        import sciml
        from sciml import parallel

        def run(rate, *, max_steps=20):
            field = lambda t, y, args: -rate * y
            options = dict(t0=0.0, t1=1.0, throw=False)
            return sciml.solve(field, jnp.ones(1), max_steps=max_steps, **options)

        rates = np.array([1.0, 10.0, 300.0])
        retry = parallel.Retry([{"max_steps": 50}, {"max_steps": 5000}])
        result = parallel.sweep(run, rates, on_fail=retry, output=lambda sol: sol.ys[-1, 0], progress=False)
        assert result.failed.size == 0 and result.attempts[0] == 1 and result.attempts[2] > 1
        ```
    """

    attempts: tuple[Any, ...] = eqx.field(converter=_as_attempts)

    def __check_init__(self):
        if not self.attempts:
            raise ValueError("`Retry` requires at least one attempt, such as `Retry([{'max_steps': 100_000}])`.")
        for attempt in self.attempts:
            if isinstance(attempt, Mapping) and attempt and all(isinstance(name, str) for name in attempt):
                continue
            if isinstance(attempt, Mapping) or not callable(attempt):
                raise TypeError(
                    "`Retry`: an attempt must be a function, or a mapping of keyword arguments for the sweep's "
                    f"function such as {{'max_steps': 100_000}}, got {attempt!r}."
                )


def check_on_fail(on_fail: Any, fn: Callable) -> Sequence[Any]:
    """Checks `on_fail` and returns the attempts to be made."""
    if on_fail in ("keep", "raise"):
        return ()
    if not isinstance(on_fail, Retry):
        raise ValueError(f'`sweep`: `on_fail` must be "keep", "raise" or a `Retry`, got {on_fail!r}.')
    for attempt in on_fail.attempts:
        unknown = [] if callable(attempt) or takes_any(fn) else [name for name in attempt if not takes(fn, name)]
        if unknown:
            raise ValueError(
                f"`sweep`: `on_fail` passes `{unknown[0]}` to `fn`, which has no such parameter. Add it, as in "
                f"`def run(p, *, {unknown[0]}=...)`, or pass a function to `Retry`."
            )
    return on_fail.attempts
