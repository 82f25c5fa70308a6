"""Sparse identification: few terms of a library that explain rates."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import check_count, check_key
from .._types import Key
from ..models.sparse._sparse_model import AbstractLibrary, SparseModel
from ._smooth import smooth


class Sparse:
    """The result of `sindy`; `print(found)` shows the equations.

    Attributes:
        model: The equation, a sparse model.
        terms: The names of all terms that were tried.
        score: For each output, the part of the variance that the equation explains, 1 at best.
        inclusion: In which part of the bootstrap samples each term was kept, shape `(terms, outputs)`; None without.
        deviation: The standard deviation of each coefficient over the samples that kept it, likewise.
    """

    def __init__(
        self,
        model: SparseModel,
        terms: tuple[str, ...],
        score: np.ndarray,
        inclusion: np.ndarray | None = None,
        deviation: np.ndarray | None = None,
    ):
        self.model, self.terms, self.score = model, terms, score
        self.inclusion, self.deviation = inclusion, deviation

    def __str__(self) -> str:
        """The equations, one a line."""
        return str(self.model)

    def __repr__(self) -> str:
        return f"Sparse({'; '.join(self.model.equations())})"


def sindy(
    library: AbstractLibrary,
    states: PyTree,
    derivatives: PyTree = None,
    *,
    ts: Any = None,
    threshold: float = 0.05,
    ridge: float = 0.0,
    names: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    bootstrap: int = 0,
    least_inclusion: float = 0.5,
    key: Key | None = None,
) -> Sparse:
    r"""Finds an equation: the few terms of a library whose sum is the rates (SINDy).

    Sequentially thresholded least squares. The rates are regressed on all terms, those with small contributions are
    removed, and this repeats until all remaining terms contribute enough:

    $$\dot y_j \approx \sum_i c_{ij} \, \theta_i(y), \qquad
    \lvert c_{ij} \rvert \, \mathrm{rms}(\theta_i) \ge \eta \, \mathrm{rms}(\dot y_j) \text{ or } c_{ij} = 0.$$

    The threshold $\eta$ is relative to the rates, so units do not matter. Rates may be known, be estimated from records
    by `smooth`, or be the output of a trained network: `jax.vmap(lambda y: ude.term(0.0, y,
    None))(states)`.

    Args:
        library: The terms to try, such as `sciml.models.sparse.Polynomials(2)`.
        states: States $y$, a PyTree of arrays of shape `(samples, ...)`.
        derivatives: The values to explain at each state, a PyTree of arrays of shape `(samples, ...)`: rates, or a
            term.
        ts: Instead of `derivatives`: the times of the states, a record that is then smoothed and differentiated.
        threshold: $\eta$.
        ridge: The weight of a penalty on coefficients, in units of their contributions, for nearly collinear terms. The
            final coefficients are fitted without it.
        names: The names of the state components; by default the names of its leaves: `hare`, `q[0]`.
        outputs: The names of the explained values; by default "dx/dt" if derivatives have the structure of the states.
        bootstrap: The number of repetitions with resampled data, which show the influence of chance.
        least_inclusion: With `bootstrap`: terms that fewer of these keep are left out of the equation.
        key: A random key for the draws.

    Returns:
        A `Sparse`: the model, its quality, and how often its terms were kept. Samples that are not finite are ignored.

    Raises:
        ValueError: If there is not a row of derivatives for each state, both or neither of `derivatives` and `ts` are
            given, there are fewer samples than terms, or a number is out of range.
        TypeError: If the library is not a library of terms.

    Source:
        S. L. Brunton, J. L. Proctor and J. N. Kutz, PNAS 113:3932, 2016; with bootstrap U. Fasel, J. N. Kutz,
        B. W. Brunton and S. L. Brunton, Ensemble-SINDy, Proc. R. Soc. A 478:20210904, 2022.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import training
        from sciml.models.sparse import Polynomials

        ts = jnp.linspace(0.0, 6.0, 121)
        decay = jnp.exp(-0.2 * ts)
        swing = {"x": decay * jnp.cos(2 * ts), "v": -decay * (2 * jnp.sin(2 * ts) + 0.2 * jnp.cos(2 * ts))}
        found = training.sindy(Polynomials(2), swing, ts=ts)
        print(found)  # dv/dt = -0.4 v - 4.04 x, dx/dt = v, nearly
        assert [line.split()[-1] for line in found.model.equations()] == ["x", "v"]  # the last term of each
        ```
    """
    if not isinstance(library, AbstractLibrary):
        raise TypeError(
            f"`library` must be a library such as `sciml.models.sparse.Polynomials(2)`, but is {library!r}."
        )
    if (derivatives is None) == (ts is None):
        raise ValueError(
            "`sindy` requires either `derivatives`, or `ts` to estimate them. Pass exactly one of the two."
        )
    if not (np.isfinite(threshold) and 0 <= threshold < 1) or not ridge >= 0:
        raise ValueError(
            f"`threshold` must be from 0 to 1 and `ridge` nonnegative, but they are {threshold} and {ridge}."
        )
    if ts is not None:
        _, states, derivatives = smooth(ts, states)
    x, y = _rows(states, "states"), _rows(derivatives, "derivatives")
    if len(x) != len(y):
        raise ValueError(f"`states` and `derivatives` must have the same length, but have {len(x)} and {len(y)} rows.")
    inputs = names_of(states) if names is None else tuple(names)
    if len(inputs) != x.shape[1]:
        raise ValueError(f"`names` must be {x.shape[1]} names, one for each state component, but are {inputs}.")
    told = _outputs(states, derivatives, inputs, outputs, y.shape[1])
    terms = library.names(inputs)
    theta = np.asarray(jax.vmap(library)(jnp.asarray(x, jnp.result_type(float))), np.float64)
    good = np.all(np.isfinite(theta), axis=1) & np.all(np.isfinite(y), axis=1)
    theta, y = theta[good], y[good]
    if len(theta) < theta.shape[1]:
        raise ValueError(
            f"{len(theta)} finite samples do not determine {theta.shape[1]} terms. Use more samples, or a smaller "
            "library."
        )
    kept = _thresholded(theta, y, threshold, ridge)
    inclusion = deviation = None
    if bootstrap:
        count = check_count(bootstrap, "bootstrap", "sindy")
        inclusion, deviation = _bootstrapped(theta, y, threshold, ridge, count, key)
        kept = inclusion >= least_inclusion
    table = _least_squares(theta, y, kept, 0.0)
    residual = y - theta @ table
    spread = np.sum((y - y.mean(axis=0)) ** 2, axis=0)
    score = 1 - np.sum(residual**2, axis=0) / np.where(spread > 0, spread, 1.0)
    like = jax.tree.map(lambda leaf: np.zeros(np.shape(leaf)[1:]), derivatives)
    model = SparseModel(library, table, inputs, told, like=like)
    return Sparse(model, terms, score, inclusion, deviation)


def _rows(tree: PyTree, name: str) -> np.ndarray:
    """Returns the numbers of each sample as a row."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    if not leaves or any(leaf.ndim == 0 or len(leaf) != len(leaves[0]) for leaf in leaves):
        shapes = [leaf.shape for leaf in leaves]
        raise ValueError(f"`{name}` must be arrays with a row for each sample, but have shapes {shapes}.")
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def names_of(states: PyTree) -> tuple[str, ...]:
    """Returns a name for each number of a state, by the names of the leaves."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(states):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "y"
        places = list(np.ndindex(*np.shape(leaf)[1:]))
        found += [name + (f"[{','.join(map(str, place))}]" if place else "") for place in places]
    return tuple(found)


def _outputs(states: Any, derivatives: Any, inputs: tuple, outputs: Any, count: int) -> tuple[str, ...]:
    if outputs is not None:
        if len(outputs) != count:
            raise ValueError(f"`outputs` must be {count} names, but are {tuple(outputs)}.")
        return tuple(outputs)
    same = jax.tree.map(np.shape, states) if jax.tree.structure(states) == jax.tree.structure(derivatives) else None
    if same is not None and same == jax.tree.map(np.shape, derivatives):
        return tuple(f"d{name}/dt" for name in inputs)
    single = len(jax.tree.leaves(derivatives)) == 1
    return tuple(f"term[{i}]" for i in range(count)) if single else names_of(derivatives)


def _least_squares(theta: np.ndarray, y: np.ndarray, kept: np.ndarray, ridge: float) -> np.ndarray:
    """Returns the coefficients of the terms that are kept, zero elsewhere."""
    table = np.zeros((theta.shape[1], y.shape[1]))
    size = np.sqrt(np.mean(theta**2, axis=0))
    size = np.where(size > 0, size, 1.0)
    for j in range(y.shape[1]):
        some = np.flatnonzero(kept[:, j])
        if not some.size:
            continue
        a, b = theta[:, some] / size[some], y[:, j]
        if ridge > 0:
            a = np.concatenate([a, np.sqrt(ridge * len(a)) * np.eye(some.size)])
            b = np.concatenate([b, np.zeros(some.size)])
        table[some, j] = np.linalg.lstsq(a, b, rcond=None)[0] / size[some]
    return table


def _thresholded(theta: np.ndarray, y: np.ndarray, threshold: float, ridge: float) -> np.ndarray:
    """Returns which terms are kept."""
    shares = np.sqrt(np.mean(theta**2, axis=0))[:, None]
    wanted = threshold * np.sqrt(np.mean(y**2, axis=0))
    kept = np.broadcast_to(shares > 0, (theta.shape[1], y.shape[1])).copy()
    for _ in range(theta.shape[1]):  # every turn but the last leaves out one term at least
        table = _least_squares(theta, y, kept, ridge)
        still = kept & (np.abs(table) * shares >= wanted) & (table != 0)
        if np.array_equal(still, kept):
            break
        kept = still
    return kept


def _bootstrapped(
    theta: np.ndarray, y: np.ndarray, threshold: float, ridge: float, count: int, key: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Returns how often each term was kept, and the deviation of its coefficient where it was."""
    key = jax.random.key(0) if key is None else check_key(key, "sindy")
    draw = np.random.default_rng(np.asarray(jax.random.bits(key, (4,), jnp.uint32)))
    tables = []
    for _ in range(count):
        rows = draw.integers(len(theta), size=len(theta))
        kept = _thresholded(theta[rows], y[rows], threshold, ridge)
        tables.append(np.where(kept, _least_squares(theta[rows], y[rows], kept, 0.0), np.nan))
    stack = np.stack(tables)
    there = np.isfinite(stack)
    number = there.sum(axis=0)
    mean = np.where(there, stack, 0).sum(axis=0) / np.maximum(number, 1)
    squares = np.where(there, (stack - mean) ** 2, 0).sum(axis=0)
    deviation = np.where(number > 1, np.sqrt(squares / np.maximum(number - 1, 1)), np.nan)
    return number / count, deviation
