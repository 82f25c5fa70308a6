"""Population pharmacokinetics: do intervals of 95% hold the truth in 95 of 100 data sets?"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import scipy.stats
from jaxtyping import Array

from sciml import inference
from sciml.inference._hierarchical import Hierarchical

from ._harness import Candidate, Group, Measured, in_float64, report

SETS, SUBJECTS = 100, 100
DOSE = 100.0


class Study(NamedTuple):
    """A drug in a population.

    Attributes:
        level: The level in the blood at some times, of logarithms of a subject's constants.
        constants: Their names, those that vary between subjects first.
        truth: Logarithms of the typical constants, of the spreads of those that vary, and of the noise.
        times: When blood is taken, in hours.
    """

    level: Callable[[Array, Array], Array]
    constants: tuple[str, ...]
    truth: dict[str, Any]
    times: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is estimated, in the order of `LogDensity.names`."""
        varying = self.constants[: len(self.truth["spread"])]
        return ("noise", *(f"spread of {name}" for name in varying), *self.constants)

    def start(self) -> dict[str, Array]:
        """Where fits begin: off the truth by a fifth."""
        return jax.tree.map(lambda x: jnp.asarray(x) + 0.2, self.truth)

    def population(self, data: Array, start: dict[str, Array], method: Any) -> Hierarchical:
        """The density of what is estimated, given data."""
        times = jnp.asarray(self.times)

        def observe(model: dict[str, Array], effects: Array, subject: None) -> inference.LogNormal:
            constants = model["typical"].at[: effects.size].add(effects)
            return inference.LogNormal(jnp.log(self.level(constants, times)), jnp.exp(model["noise"]))

        def effects(model: dict[str, Array]) -> inference.Normal:
            return inference.Normal(jnp.zeros_like(model["spread"]), jnp.exp(model["spread"]))

        priors = [(lambda m: m, inference.Improper())]
        return inference.hierarchical(start, observe, data, priors, effects=effects, method=method)

    def draw(self, key: Array, subjects: int) -> Array:
        """Data as they might have been observed."""
        of_effects, of_noise = jax.random.split(key)
        spread = jnp.exp(jnp.asarray(self.truth["spread"]))
        effects = spread * jax.random.normal(of_effects, (subjects, spread.size))
        typical, times = jnp.asarray(self.truth["typical"]), jnp.asarray(self.times)
        levels = jax.vmap(lambda b: self.level(typical.at[: b.size].add(b), times))(effects)
        return levels * jnp.exp(jnp.exp(self.truth["noise"]) * jax.random.normal(of_noise, levels.shape))


def one_compartment(constants: Array, times: Array) -> Array:
    """A drug that is swallowed, absorbed and eliminated."""
    clearance, volume, absorption = jnp.exp(constants)
    rate = clearance / volume
    share = absorption / (volume * (absorption - rate))
    return DOSE * share * (jnp.exp(-rate * times) - jnp.exp(-absorption * times))


def two_compartments(constants: Array, times: Array) -> Array:
    """A drug that is injected, goes into tissue and back, and is eliminated."""
    clearance, volume, exchange, tissue = jnp.exp(constants)
    out, there, back = clearance / volume, exchange / volume, exchange / tissue
    total = out + there + back
    root = jnp.sqrt(total**2 - 4 * out * back)
    fast, slow = 0.5 * (total + root), 0.5 * (total - root)
    share = (fast - back) / (fast - slow)
    return DOSE / volume * (share * jnp.exp(-fast * times) + (1 - share) * jnp.exp(-slow * times))


def logarithms(typical: tuple[float, ...], spread: tuple[float, ...], noise: float) -> dict[str, Any]:
    """What is estimated."""
    return {"typical": np.log(typical), "spread": np.log(spread), "noise": np.log(noise)}


STUDIES = {
    "one compartment": Study(
        one_compartment,
        ("clearance", "volume", "absorption"),
        logarithms((4.0, 30.0, 1.2), (0.3, 0.2), 0.15),
        (0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0),
    ),
    "two compartments": Study(
        two_compartments,
        ("clearance", "volume", "exchange", "volume of tissue"),
        logarithms((4.0, 20.0, 6.0, 40.0), (0.3, 0.2), 0.15),
        (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0),
    ),
}


class Coverage(NamedTuple):
    """How estimates of many data sets compare with the truth.

    Attributes:
        names: What is estimated.
        truth: The truth, of shape `(p,)`.
        estimates: Estimates, of shape `(sets, p)`.
        errors: Their standard errors.
    """

    names: tuple[str, ...]
    truth: np.ndarray
    estimates: np.ndarray
    errors: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """In how many sets the interval of 95% holds the truth."""
        return np.sum(np.abs(self.estimates - self.truth) < 1.959964 * self.errors, axis=0)

    @property
    def expected(self) -> tuple[int, int]:
        """Between which numbers it does in 99% of such experiments, if it does with a probability of 95%."""
        low, high = scipy.stats.binom.interval(0.99, len(self.estimates), 0.95)
        return int(low), int(high)


def estimates(study: Study, method: str, subjects: int) -> Callable[[Array], tuple[Array, Array]]:
    """A function of keys that draws data sets, and fits them as lanes; it returns estimates and standard errors."""
    begin = study.start()

    def fitted(key: Array) -> tuple[Array, Array]:
        density = study.population(study.draw(key, subjects), begin, method).marginal

        def misfit(z: Array, args: None = None) -> Array:
            return density.potential(density.unravel(z)) / subjects  # so that the first step is no longer than one

        start = density.ravel(density.unconstrain(density.model))
        solver = optimistix.BFGS(1e-7, 1e-7)
        z = optimistix.minimise(misfit, solver, start, max_steps=100, throw=False).value
        return z, jnp.sqrt(jnp.diagonal(jnp.linalg.inv(subjects * jax.jacfwd(jax.grad(misfit))(z))))

    return jax.vmap(fitted)


def coverage(study: Study, found: tuple[Array, Array]) -> Coverage:
    """Compares estimates with the truth."""
    truth = np.concatenate([np.ravel(study.truth[name]) for name in sorted(study.truth)])
    return Coverage(study.names, truth, np.asarray(found[0]), np.asarray(found[1]))


def told(found: Coverage, label: str) -> str:
    """The estimates of all sets as a table."""
    low, high = found.expected
    lines = ["| | truth | mean | spread of estimates | mean error | within 95% |", "|---|---|---|---|---|---|"]
    middle, spread, error = found.estimates.mean(axis=0), found.estimates.std(axis=0), found.errors.mean(axis=0)
    rows = zip(found.names, np.exp(found.truth), np.exp(middle), spread, error, found.inside, strict=True)
    lines += ["| {} | {:.4g} | {:.4g} | {:.3f} | {:.3f} | {} |".format(*row) for row in rows]
    share = found.inside.mean() / len(found.estimates)
    lines.append(f"\nExpected of each: {low} to {high} of {len(found.estimates)}; of all together {share:.1%}.\n")
    return "\n".join([f"#### {label}: estimates\n", *lines])


def one_gradient(subjects: int = 1000, records: int = 10) -> Group:
    """The marginal likelihood of many subjects with its gradient, as lanes and by a loop over a compiled subject."""
    study = STUDIES["one compartment"]._replace(times=tuple(np.linspace(0.5, 24.0, records)))
    exact: list[Any] = []

    def build(loop: bool) -> Callable[[], Any]:
        data, model = study.draw(jax.random.key(0), subjects), study.start()

        def likelihood(model: dict[str, Array], data: Array) -> Array:
            return study.population(data, model, "focei").marginal.log_likelihood(model)

        def added(total: Any, model: dict[str, Array], data: Array) -> Any:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(likelihood)(model, data))

        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, model))
        size = 1 if loop else subjects
        rows = [data[i : i + size] for i in range(0, subjects, size)]
        compiled = jax.jit(added).lower(zero, model, rows[0]).compile()

        def summed() -> Any:
            total = zero
            for row in rows:
                total = compiled(total, model, row)
            return jax.block_until_ready(total)

        return summed

    def off(out: Any) -> float:
        flat = np.concatenate([np.ravel(x) for x in jax.tree.leaves(out)])
        exact.append(flat)
        return float(np.max(np.abs(flat - exact[0]) / np.abs(exact[0])))

    rows = [
        Candidate("subjects as lanes", in_float64(lambda: build(False)), error=off),
        Candidate("loop over subjects", in_float64(lambda: build(True)), "subjects as lanes", error=off),
    ]
    title = f"{subjects} subjects with {records} records, FOCEI, float64: the marginal likelihood and its gradient"
    return Group(title, rows, repeats=3)


def groups(sets: int = SETS, subjects: int = SUBJECTS) -> list[Group]:
    """A table of times for each drug, and what came out; and the time of one gradient."""
    found = [one_gradient()]
    for number, (name, study) in enumerate(STUDIES.items()):
        seen: dict[str, Coverage] = {}

        def row(label: str, method: str, number: int = number, study: Study = study, seen: dict = seen) -> Candidate:
            def build() -> Callable[[], Any]:
                keys = jax.random.split(jax.random.key(number), sets)
                compiled = jax.jit(estimates(study, method, subjects)).lower(keys).compile()
                return lambda: jax.block_until_ready(compiled(keys))

            def kept(out: Any) -> float:
                seen[label] = coverage(study, out)
                return float("nan")

            return Candidate(label, in_float64(build), None if method == "laplace" else "Laplace", error=kept)

        def finish(rows: list[Measured], seen: dict = seen) -> None:
            for label, of in seen.items():
                report(told(of, label))

        title = f"{name.capitalize()}, {sets} sets of {subjects} subjects, float64: all fits with their standard errors"
        found.append(Group(title, [row("Laplace", "laplace"), row("FOCEI", "focei")], repeats=1, finish=finish))
    return found
