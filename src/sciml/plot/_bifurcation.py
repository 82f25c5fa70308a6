"""Bifurcation diagrams: branches of steady states and limit cycles over a parameter."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ._components import choose, finite, split
from ._style import PALETTE, new_axes

# By the codes of `bifurcation.Kind`: the name and the marker of each kind of special point.
_KINDS = {
    1: ("fold", "s"),
    2: ("Hopf point", "o"),
    3: ("branch point", "^"),
    4: ("period doubling", "D"),
    5: ("torus bifurcation", "v"),
}


def bifurcation(
    branches: Any,
    y: int | str | Callable[[Any], Any] = 0,
    *,
    ax: Any = None,
    parameter: str = "parameter",
    labels: str | Sequence[str] | None = None,
    members: int | Sequence[int] | None = None,
    title: str | None = None,
) -> Any:
    """Draw a bifurcation diagram: a component of steady states or limit cycles over the parameter.

    Stable states are solid lines, unstable ones dashed; limit cycles have two lines, their largest and smallest values.
    Markers are the special points: squares for folds, circles for Hopf points, triangles for branch points, diamonds
    for period doublings. Each branch has a colour, which the members of a batch share.

    Args:
        branches: A `Branch` of `sciml.bifurcation`, batched or not, or a sequence of them.
        y: The component: its index in the order of the leaves, its name, or a function of the state that returns a
            number.
        ax: The `matplotlib.axes.Axes` to draw on; a new figure if None.
        parameter: The name of the parameter, for the axis.
        labels: A name for each component; for a function its name.
        members: For a batch, the number of members to draw, evenly spaced, or their indices; by default at
            most 20.
        title: A title above the picture.

    Returns:
        The `matplotlib.axes.Axes`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If there is no such component.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import bifurcation, plot

        switch = lambda t, y, b: b + y - y**3
        branch = bifurcation.continuation(switch, jnp.array([-1.3]), args=-1.0, bounds=(-1.0, 1.0))
        ax = plot.bifurcation(branch, parameter="b", labels=["y"])
        assert ax.get_xlabel() == "b" and ax.get_ylabel() == "y"
        ```
    """
    several = branches if isinstance(branches, list | tuple) else [branches]
    ax, seen, name = new_axes(ax), {}, ""
    for number, branch in enumerate(several):
        name, lines = _read(branch, y, labels)
        count = len(lines[0][0])
        places = finite(branch.parameter).reshape(count, -1)
        marks = finite(branch.special.parameter).reshape(count, -1)
        kinds = np.asarray(branch.special.kind).reshape(count, -1)
        if getattr(branch.ys, "multipliers", branch.eigenvalues) is None:
            stable = np.isfinite(places)
        else:
            stable = np.asarray(branch.stable).reshape(count, -1)
        chosen = choose(members, count, 20)
        look = {"color": PALETTE[number % len(PALETTE)], "alpha": max(0.4, 1 / np.sqrt(max(chosen.size, 1)))}
        for i, (values, special) in itertools.product(chosen, lines):
            _draw(ax, *_cut(places[i], values[i], stable[i], marks[i], special[i]), look)
            for kind, (_, marker) in _KINDS.items():
                here = kinds[i] == kind
                at = marks[i, here], special[i, here]
                (line,) = ax.plot(*at, marker, **look, markerfacecolor="white", markersize=6)
                if here.any():
                    seen.setdefault(kind, line)
    if seen:
        ax.legend(list(seen.values()), [_KINDS[kind][0] for kind in seen], frameon=True, framealpha=0.8)
    ax.set_xlabel(parameter)
    ax.set_ylabel(name)
    if title is not None:
        ax.set_title(title, loc="left", fontsize="medium")
    return ax


def _cut(
    x: np.ndarray, y: np.ndarray, stable: np.ndarray, marks: np.ndarray, special: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a branch on which stability changes at special points instead of between points of the branch."""
    line, points = np.stack([x, y], 1), np.stack([marks, special], 1)
    scale = np.maximum(np.ptp(line[np.isfinite(line).all(1)], axis=0), 1e-30)
    line, points = line / scale, points[np.isfinite(points).all(1)] / scale
    for k in np.flatnonzero(stable[1:] != stable[:-1])[::-1]:
        ends = line[k : k + 2]
        away = np.linalg.norm(points - ends.mean(0), axis=1)
        if away.size and away.min() <= np.linalg.norm(ends[1] - ends[0]):
            line = np.insert(line, k + 1, np.tile(points[away.argmin()], (2, 1)), axis=0)
            stable = np.insert(stable, k + 1, [stable[k], stable[k + 1]])
    x, y = (line * scale).T
    return x, y, stable


def _draw(ax: Any, x: np.ndarray, y: np.ndarray, stable: np.ndarray, look: dict[str, Any]) -> None:
    """Draw the pieces of one branch between changes of stability; a piece with an unstable end is unstable."""
    pieces = stable[1:] & stable[:-1]
    for solid, style in ((True, "-"), (False, "--")):
        cuts = np.flatnonzero(pieces != solid) + 1
        ax.plot(np.insert(x, cuts, np.nan), np.insert(y, cuts, np.nan), style, linewidth=1.4, **look)


def _read(branch: Any, y: Any, labels: Any) -> tuple[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Returns the name of a component, and its values on the branch and at special points, (members, ...).

    Of limit cycles there are two pairs, the largest and the smallest values.
    """
    shape, ys, points = np.shape(branch.parameter), branch.ys, branch.special.y
    if not hasattr(ys, "multipliers"):
        name, values, special = _component(ys, points, shape, y, labels)
        return name, [(values, special)]
    # the nodes as members
    axis, nodes = len(shape) - 1, ys.ts.shape[-1]
    ys, points = (jax.tree.map(lambda x: np.moveaxis(np.asarray(x), axis + 1, axis), z.ys) for z in (ys, points))
    name, *found = _component(ys, points, (*shape[:-1], nodes, shape[-1]), y, labels)
    found = [x.reshape(-1, nodes, x.shape[-1]) for x in found]
    return name, [(found[0].max(1), found[1].max(1)), (found[0].min(1), found[1].min(1))]


def _component(ys: Any, points: Any, shape: tuple, y: Any, labels: Any) -> tuple[str, np.ndarray, np.ndarray]:
    """Returns the name of a component, and its values for two arrays of states, (members, ...)."""
    batch, count = shape[:-1], np.shape(jax.tree.leaves(points)[0])[len(shape) - 1]
    if callable(y):
        several = y
        for _ in shape:
            several = jax.vmap(several)
        found = [np.asarray(several(x)) for x in (ys, points)]
        if found[0].shape != shape:
            raise ValueError(f"y must return one number for a state, but returned {found[0].shape[len(shape) :]}.")
        name = labels if isinstance(labels, str) else labels[0] if labels else getattr(y, "__name__", "y")
        values, special = (finite(x).reshape(int(np.prod(batch)), -1) for x in found)
        return ("y" if name == "<lambda>" else name), values, special
    on_branch, at_points = split(ys, batch, shape[-1], labels), split(points, batch, count, labels)
    names = [component.name for component in on_branch]
    index = names.index(y) if y in names else y
    if isinstance(index, str) or not -len(names) <= index < len(names):
        raise ValueError(f"y must be a component, one of {names} or its index; got {y!r}.")
    return names[index], on_branch[index].values, at_points[index].values
