"""A sweep in a few lines: how many members failed, where in the parameters, and why."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._status import Status
from ..members._pytree import expand, is_array


def summarise(result: Any) -> str:
    """Returns the summary of a `SweepResult`."""
    lines = [f"{result.n} members in {result.seconds:.3g} s: {result.n - result.failed.size} successful"]
    if result.failed.size:
        lines[0] += f", {result.failed.size} failed"
    if result.stored:
        lines[0] += f"; {result.stored} were in the store"
    if result.efficiency is not None:
        lines.append(f"  lane efficiency {result.efficiency:.2f} in blocks of {result.block}")
    again = result.attempts > 1
    if again.any():
        good = result.status == 0
        each = [np.count_nonzero(good & (result.attempts == i)) for i in range(2, result.attempts.max() + 1)]
        by = ", ".join(f"{count} by retry {i}" for i, count in enumerate(each, 1) if count)
        lines.append(f"  {np.count_nonzero(again)} retried, {sum(each)} recovered" + (f": {by}" if by else ""))
    params = expand(result.members) if result.failed.size else None
    for code in np.unique(result.status[result.failed]):
        ids = np.flatnonzero(result.status == code)
        shown = ", ".join(map(str, ids[:10])) + (", ..." if ids.size > 10 else "")
        name, message = _explain(int(code))
        lines.append(f"  {name}: {ids.size} (members {shown}). {message}".rstrip())
        lines += _ranges(params, ids)
    return "\n".join(lines)


def _explain(code: int) -> tuple[str, str]:
    try:
        return Status(code).name, Status(code).message
    except ValueError:  # from a result type of the user's own
        return f"status {code}", ""


def _ranges(params: PyTree, ids: np.ndarray) -> list[str]:
    lines = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not is_array(leaf) or leaf.size == 0:
            continue
        if not (jnp.issubdtype(leaf.dtype, jnp.integer) or jnp.issubdtype(leaf.dtype, jnp.floating)):
            continue  # random keys, booleans and complex numbers have no range
        there = leaf[ids]
        lines.append(f"    params{jax.tree_util.keystr(path)}: {_range(there)} (all members: {_range(leaf)})")
    return lines


def _range(values: np.ndarray) -> str:
    known = values[~np.isnan(values)]
    missing = f"{values.size - known.size} NaN" if known.size < values.size else ""
    if known.size == 0:
        return missing
    span = f"{known.min():.6g} to {known.max():.6g}"
    return f"{span}, {missing}" if missing else span
