"""A protein with some independent sites, written out: networks of tens to thousands of species by one rule.

Each site is free and bare, free and phosphorylated, held by the kinase, or held by the phosphatase. The kinase binds a
bare site and lets go of it, or leaves it phosphorylated; the phosphatase does the reverse. Sites of one molecule do not
know of one another, so that there are `4**sites + 2` species and `6 * sites * 4**(sites - 1)` reactions: 66 and 288 of
three sites, 258 and 1536 of four, 1026 and 7680 of five. Such networks are what NFsim was written for (M. W. Sneddon,
J. R. Faeder, T. Emonet, Nature Methods 8, 2011), and what BioNetGen writes out. Rate constants are our own.

Enzymes link all species with all: the Jacobian has two dense rows and columns.
"""

import numpy as np
from scipy import sparse

BIND, RELEASE, CONVERT = 3e4, 1e2, 1.0
"""Rates, of binding one to another in 1/(concentration x time)."""

PROTEIN, KINASE, PHOSPHATASE = 1.0, 0.3, 0.1
"""How much there is at the start, free and bare."""

_BARE, _DONE, _BY_KINASE, _BY_PHOSPHATASE = range(4)


def tables(sites: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the network of so many sites.

    Returns:
        Of each reaction the numbers of two reactants, and of two products, arrays of shape `(reactions, 2)`, where the
        number of species stands for none; the rate constants; and the initial amounts.
    """
    proteins = 4**sites
    kinase, phosphatase, nothing = proteins, proteins + 1, proteins + 2
    taken, made, rates = [], [], []
    rules = (
        (_BARE, _BY_KINASE, _DONE, kinase),
        (_DONE, _BY_PHOSPHATASE, _BARE, phosphatase),
    )
    for site in range(sites):
        place = 4**site
        for rest in range(proteins):
            if rest // place % 4:
                continue  # the others, with this site bare
            for before, held, after, enzyme in rules:
                free, bound, changed = (rest + state * place for state in (before, held, after))
                taken += [(free, enzyme), (bound, nothing), (bound, nothing)]
                made += [(bound, nothing), (free, enzyme), (changed, enzyme)]
                rates += [BIND, RELEASE, CONVERT]
    start = np.zeros(proteins + 2)
    start[0], start[kinase], start[phosphatase] = PROTEIN, KINASE, PHOSPHATASE
    return np.array(taken), np.array(made), np.array(rates), start


def stoichiometry(sites: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Returns how many of each species each reaction takes and makes, of shape `(reactions, species)`."""
    taken, made, rates, start = tables(sites)
    found = []
    for table in (taken, made):
        rows, places = np.nonzero(table < start.size)
        columns, ones = table[rows, places], np.ones(rows.size, np.int64)
        found.append(sparse.csr_array((ones, (rows, columns)), shape=(rates.size, start.size)))
    return found[0], found[1]
