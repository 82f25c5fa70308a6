"""Networks that BioNetGen has written out, in `benchmarks/data`, as tables of their reactions."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import sciml

Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of each reaction the numbers of two reactants, and of two products, arrays of shape `(reactions, 2)`, where the
number of species stands for none; the rate constants; and the initial amounts."""


def path_of(name: str) -> pathlib.Path:
    """Where the file of a network is."""
    return pathlib.Path(__file__).with_name("data") / f"{name}.net"


@functools.cache
def network_of(name: str) -> sciml.models.ReactionNetwork:
    """A network as a model, with parameters in double precision."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        return sciml.models.ReactionNetwork.from_bionetgen(path_of(name))


@functools.cache
def tables_of(name: str) -> Tables:
    """A network as tables."""
    network = network_of(name)
    species = len(network.species)
    rows = path_of(name).read_text().partition("begin reactions")[2].partition("end reactions")[0].split("\n")
    sides: tuple[list, list] = ([], [])
    for row in filter(str.strip, rows):
        for side, text in zip(sides, row.split()[1:3]):
            numbers = [int(number) - 1 for number in text.split(",") if number != "0"]
            side.append(numbers + [species] * (2 - len(numbers)))
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        rates = network.rates(0.0, jnp.ones(species, "float64"))  # of one molecule of each: the constants
        start = network.y0
    return np.array(sides[0]), np.array(sides[1]), np.asarray(rates), np.asarray(start, float)
