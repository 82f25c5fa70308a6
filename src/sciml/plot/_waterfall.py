"""Where many starts of a fit ended."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ._style import PALETTE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def waterfall(
    losses: Float[np.ndarray, " starts"],
    *,
    within: float = 0.1,
    ax: "Axes | None" = None,
    title: str | None = None,
    label: str = "loss above the best",
) -> "Axes":
    """Draw the losses at which several starts of a fit ended, the best first.

    A plateau at the left says that many starts found the same optimum; steps behind it are other ones.

    Args:
        losses: The losses, such as minus the logarithms of likelihoods; those that are not finite are left out.
        within: Starts that end this close to the best are drawn in another colour and counted.
        ax: The axes; by default those of a new figure.
        title: A title.
        label: What is drawn upwards.

    Returns:
        The `matplotlib.axes.Axes`, with a logarithmic axis from `within` on.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If no loss is finite, or `within` is not positive.

    Example:
        ```python
        import numpy as np
        from sciml import plot

        ax = plot.waterfall(np.array([3.0, 1.0, 1.01, np.inf, 1.0]), title="five starts")
        assert len(ax.lines) > 0
        ```
    """
    losses = np.asarray(losses, float).reshape(-1)
    found = np.sort(losses[np.isfinite(losses)])
    if not found.size:
        raise ValueError("`losses` must have one that is finite at least.")
    if not within > 0:
        raise ValueError(f"`within` must be positive, but is {within!r}.")
    ax = new_axes(ax)
    above, numbers = found - found[0], 1 + np.arange(found.size)
    near = above <= within
    blue, vermilion = PALETTE[:2]
    ax.plot(numbers, above, color="0.7", linewidth=0.8, zorder=1)
    ax.plot(numbers[near], above[near], "o", color=blue, markersize=4, label=f"{near.sum()} within {within:g}")
    if not near.all():
        ax.plot(numbers[~near], above[~near], "o", color=vermilion, markersize=4, label=f"{(~near).sum()} elsewhere")
    ax.set_yscale("symlog", linthresh=within)
    ax.set(xlabel=f"start, of {losses.size}", ylabel=label, ylim=(-0.3 * within, None))
    if title is not None:
        ax.set_title(title)
    ax.legend(frameon=False, loc="upper left")
    return ax
