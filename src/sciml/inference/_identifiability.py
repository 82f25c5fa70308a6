"""`identifiability`: which combinations of parameters data determine, and which they do not."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import check_key
from .._status import Status
from .._types import Key, RealScalarLike
from ..training._directions import in_words
from ..training._drive import drive
from ..training._optimisers import as_optimiser
from ..training._problem import LeastSquaresProblem, check_start, jacobian, pose, residual_at
from ..training._selection import ParameterSelection, select
from ._log_density import as_array

_MOST_PAIRS = 45
# Two optima are different where some parameter differs by this part of its scale.
_APART = 0.05


class Identifiability(eqx.Module):
    r"""The parameters that data determine, returned by `identifiability`.

    Directions are changes of all parameters together, relative to their sizes: `0.71 a - 0.71 b` means that `a` grows
    as `b` shrinks by the same percentage.

    Attributes:
        fisher: The Fisher information $J^T J / \sigma^2$ of the free variables, in units of their scales, `(p, p)`.
        rank: How many directions the data determine at all.
        directions: Its eigenvectors as columns, the best determined first, shape `(p, p)`.
        relative_errors: The standard error along each, shape `(p,)`; 1 is 100%, infinity is not at all.
        names: The parameters' names, in the order of the matrix.
        undetermined: Directions that the data do not determine, in words.
        sloppy: Directions with errors above 100%, in words; an undetermined one is not among them.
        alternatives: Other values of the parameters that fit as well, in words; None if they were not looked for.
        alternative_models: The models with these values.
    """

    fisher: Float[Array, "p p"]
    rank: int = eqx.field(static=True)
    directions: Float[Array, "p p"]
    relative_errors: Float[Array, " p"]
    names: tuple[str, ...] = eqx.field(static=True)
    undetermined: tuple[str, ...] = eqx.field(static=True)
    sloppy: tuple[str, ...] = eqx.field(static=True)
    alternatives: tuple[str, ...] | None = eqx.field(static=True)
    alternative_models: tuple[PyTree, ...]

    def summary(self) -> str:
        """Returns the findings, a line for each direction that is badly determined."""
        lines = [f"the data determine {self.rank} of {len(self.names)} directions"]
        lines += [f"not at all: {words}" for words in self.undetermined]
        lines += [f"badly: {words}" for words in self.sloppy]
        if self.alternatives is not None:
            lines += [f"fits as well: {words}" for words in self.alternatives]
            if not self.alternatives:
                lines.append("no other values that fit as well were found")
        return "\n".join(lines)


def identifiability(
    model: PyTree,
    residuals: Callable[[Any, Any], PyTree],
    data: PyTree = None,
    *,
    where: Callable[[Any], Any] | None = None,
    positive: bool | Callable[[Any], Any] | None = None,
    bounds: Sequence = (),
    transforms: Sequence = (),
    sigma: RealScalarLike | None = 1.0,
    starts: int = 0,
    key: Key | None = None,
    max_steps: int = 200,
) -> Identifiability:
    r"""Says which combinations of parameters data determine, at a model that fits them or that one plans to measure.

    The Fisher information $J^T J / \sigma^2$ with the Jacobian $J$ of the residuals, by forward tangents if there are
    fewer parameters than residuals, distinguishes directions along which nothing changes (its rank is less than the
    number of parameters) from directions that are merely wide. This is about the neighbourhood of the model. Two
    parameters may also be exchangeable, such as the rates of absorption and elimination of a drug: with `starts` the
    fit is repeated, as lanes, from points at which two parameters are exchanged, and from random points, and equally
    good fits are reported.

    Args:
        model: The model, as in `sciml.fit`: `fit.model` or a guess.
        residuals: `residuals(model, data)`, in units of their standard deviation, as in `sciml.fit`.
        data: Whatever `residuals` needs.
        where: Picks the leaves, as in `sciml.fit`.
        positive: Picks those that are positive, whose sizes are relative, as in `sciml.fit`.
        bounds: Tuples `(selector, lower, upper)`, as in `sciml.fit`.
        transforms: Tuples `(selector, transform)`, as in `sciml.fit`.
        sigma: The residuals' standard deviation; None estimates it from the residuals at the model.
        starts: How many other starts to draw in the search for other values that fit as well; 0 for no search.
        key: A random key, if `starts` is not 0.
        max_steps: The most steps of each fit in the search.

    Returns:
        An `Identifiability`.

    Raises:
        ValueError: If an argument makes no sense, or residuals are not finite.
        TypeError: As `sciml.fit`.

    Source:
        R. N. Gutenkunst and others, Universally sloppy parameter sensitivities in systems biology models, PLoS Comput.
        Biol. 3:e189, 2007.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inference

        times = jnp.linspace(0.0, 2.0, 9)

        def residuals(model, data):
            return (model["dose"] / model["volume"] * jnp.exp(-model["rate"] * times) - data) / 0.1

        model = {"dose": jnp.array(10.0), "volume": jnp.array(5.0), "rate": jnp.array(1.0)}
        found = inference.identifiability(model, residuals, jnp.zeros(9), positive=True)
        assert found.rank == 2 and found.undetermined == ("0.71 `dose` + 0.71 `volume`",)
        ```
    """
    if isinstance(starts, bool) or not isinstance(starts, int) or starts < 0:
        raise ValueError(f"`identifiability(starts=...)` must be a nonnegative number, but is {starts!r}.")
    if starts and key is None:
        raise ValueError("`identifiability(starts=...)` draws random starts and requires `key=jax.random.key(0)`.")
    model, selection = select(jtu.tree_map(as_array, model), where, positive, bounds, transforms)
    problem, narrowest = pose(model, jtu.tree_map(as_array, data), selection, residuals, by_jacobians=False)
    z = selection.flatten(model)
    check_start(problem, z[None])
    jac = np.asarray(jacobian(problem, z), np.float64)
    sigma = _noise(problem, z, sigma)
    scale = np.asarray(selection.scale(z), np.float64)
    scaled = jac * scale / sigma
    _, s, vt = np.linalg.svd(scaled)
    s = np.concatenate([s, np.zeros(selection.size - len(s))])
    good = s > 10 * float(jnp.finfo(narrowest).eps) * max(jac.shape) * max(s[0], np.finfo(float).tiny)
    with np.errstate(divide="ignore"):
        errors = np.where(good, 1 / np.where(good, s, 1), np.inf)
    names = selection.names
    alternatives, others = None, ()
    if starts:
        alternatives, others = _search(problem, z, sigma, starts, check_key(key, "identifiability"), max_steps)
    dtype = selection.dtype
    return Identifiability(
        fisher=jnp.asarray(scaled.T @ scaled, dtype),
        rank=int(good.sum()),
        directions=jnp.asarray(vt.T, dtype),
        relative_errors=jnp.asarray(errors, dtype),
        names=names,
        undetermined=_undetermined(vt[~good], names),
        sloppy=tuple(
            f"{in_words(v, names)} within {100 * e:.2g}%" for v, e in zip(vt, errors, strict=True) if 1 < e < np.inf
        ),
        alternatives=alternatives,
        alternative_models=others,
    )


def _undetermined(space: np.ndarray, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the directions of a space, in a basis of few names: the reduced echelon form."""
    rows = space.copy()
    for i in range(len(rows)):
        pivot = np.unravel_index(np.argmax(np.abs(rows[i:])), rows[i:].shape)
        rows[[i, i + pivot[0]]] = rows[[i + pivot[0], i]]
        rows[i] /= rows[i, pivot[1]]
        for j in range(len(rows)):
            if j != i:
                rows[j] -= rows[j, pivot[1]] * rows[i]
    return tuple(in_words(row, names, least=1e-4) for row in rows)


def _noise(problem: LeastSquaresProblem, z: Array, sigma: RealScalarLike | None) -> float:
    if sigma is None:
        r = residual_at(problem)(np.asarray(z))
        free = problem.size - problem.selection.size
        if free <= 0:
            raise ValueError(
                f"{problem.size} residuals for {problem.selection.size} parameters do not determine their standard "
                "deviation. Pass `sigma`."
            )
        return float(np.sqrt(np.sum(np.asarray(r, np.float64) ** 2) / free))
    sigma = float(np.asarray(sigma))
    if not (np.isfinite(sigma) and sigma > 0):
        raise ValueError(f"`identifiability(sigma=...)` must be a positive number or None, but is {sigma!r}.")
    return sigma


def _search(
    problem: LeastSquaresProblem, z: Float[Array, " p"], sigma: float, starts: int, key: Key, max_steps: int
) -> tuple[tuple[str, ...], tuple[PyTree, ...]]:
    """Fits again from elsewhere, and returns what fits as well, in words and as models."""
    import scipy.stats  # takes half a second, which `import sciml` need not pay

    selection = problem.selection
    zs = jnp.concatenate([z[None], _swapped(selection, z), _drawn(selection, z, starts, key)])
    rtol = 1e-8 if jnp.finfo(z.dtype).bits == 64 else 1e-4
    optimiser = as_optimiser(None, rtol, rtol)
    outcome = drive(problem, optimiser, zs, max_steps=max_steps, rtol=rtol, progress=False)
    best = outcome.losses[0] if np.isfinite(outcome.losses[0]) else np.inf
    # by the likelihood ratio: as well as the fit itself
    close = 2 * (outcome.losses - min(best, np.nanmin(outcome.losses))) / sigma**2
    fits = (outcome.codes == int(Status.successful)) & (close < scipy.stats.chi2.ppf(0.95, 1))
    scale = np.asarray(selection.scale(z), np.float64)
    found = [np.asarray(outcome.zs[0], np.float64)]
    for i in np.flatnonzero(fits):
        other = np.asarray(outcome.zs[i], np.float64)
        # within the same valley a difference is not another optimum: the straight line between the two must rise
        if all(_apart(other, known, scale) and _rises(problem, known, other, sigma) for known in found):
            found.append(other)
    words = tuple(_compared(selection, found[0], other, scale) for other in found[1:])
    return words, tuple(selection.replace(problem.model, jnp.asarray(other, z.dtype)) for other in found[1:])


def _apart(one: np.ndarray, other: np.ndarray, scale: np.ndarray) -> bool:
    return bool(np.max(np.abs(one - other) / scale) > _APART)


def _rises(problem: LeastSquaresProblem, one: np.ndarray, other: np.ndarray, sigma: float) -> bool:
    residual = residual_at(problem)
    losses = [0.5 * np.sum(np.asarray(residual(one + s * (other - one)), np.float64) ** 2) for s in (0.0, 0.5, 1.0)]
    ends = max(losses[0], losses[2])
    return not losses[1] - ends < 0.5 * sigma**2  # also where the middle is not finite


def _compared(selection: ParameterSelection, one: np.ndarray, other: np.ndarray, scale: np.ndarray) -> str:
    before, after = (np.asarray(selection.natural(jnp.asarray(x, selection.dtype))) for x in (one, other))
    changed = np.flatnonzero(np.abs(one - other) / scale > _APART)
    return ", ".join(f"`{selection.names[i]}` {before[i]:.4g} -> {after[i]:.4g}" for i in changed)


def _swapped(selection: ParameterSelection, z: Float[Array, " p"]) -> Float[Array, "pairs p"]:
    """Returns places where two parameters have changed theirs, in their own units, where their ranges allow."""
    x = np.asarray(selection.natural(z))
    pairs = [(i, j) for i in range(len(x)) for j in range(i)][:_MOST_PAIRS]
    rows = []
    for i, j in pairs:
        y = x.copy()
        y[[i, j]] = y[[j, i]]
        pieces = selection.split(jnp.asarray(y, selection.dtype))
        inside = all(bool(jnp.all(t.contains(p))) for t, p in zip(selection.transforms, pieces, strict=True))
        if inside and x[i] != x[j]:
            rows.append(selection.join([t.forward(p) for t, p in zip(selection.transforms, pieces, strict=True)]))
    return jnp.stack(rows) if rows else jnp.zeros((0, z.size), z.dtype)


def _drawn(selection: ParameterSelection, z: Float[Array, " p"], starts: int, key: Key) -> Float[Array, "starts p"]:
    noise = jax.random.normal(key, (starts, z.size), z.dtype)
    return z[None] + selection.scale(z)[None] * noise
