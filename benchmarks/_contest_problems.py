"""The problems of the contest, each a line of `PROBLEMS`, written once for all codes.

The equations of small ones are text, from which JAX, machine code (by Numba) and diffsol's language are made. Those on
grids are functions of arrays, once in JAX and once for Numba.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._bionetgen import Tables, network_of, tables_of
from ._phosphorylation import stoichiometry, tables
from .stiff_groups import (
    brusselator,
    brusselator_on_a_grid,
    robertson_groups,
    start as start_on_a_line,
    start_on_a_grid,
)

Text = dict[str, tuple[float, str]]
"""By the name of each unknown, none of which is `t`, `y` or `out`: where it starts, and its rate."""


@dataclasses.dataclass(frozen=True)
class Contested:
    """A problem.

    Attributes:
        name: Its name.
        t1: Its end; it starts at zero.
        text: Its equations as text, or None.
        ratio: The absolute over the relative tolerance.
        stiff: Whether implicit methods are for it.
        floor: What is added to the modulus of a component where its error is relative to that.
        field: In JAX, where there is no text.
        compiled: For Numba, `rate(t, y, out)`, where there is no text.
        start: The initial state, where there is no text.
        tables: The tables of a network of reactions, from which what Numba compiles and the initial state are made.
        language: In diffsol's language, where there is no text; None where it has none.
        linear: How CVODE solves linear systems.
        iterates: Whether sciml also solves them by an iteration.
        members: Whether a hundred members are measured, too.
    """

    name: str
    t1: float
    text: Text | None = None
    ratio: float = 1e-3
    stiff: bool = True
    floor: float = 1e-12
    field: Callable | None = None
    compiled: Callable | None = None
    start: Callable[[], np.ndarray] | None = None
    tables: Callable[[], Tables] | None = None
    language: str | None = None
    linear: tuple[tuple[str, Any], ...] = ()
    iterates: bool = False
    members: bool = False

    @property
    def y0(self) -> np.ndarray:
        """The initial state."""
        if self.tables is not None:
            return self.tables()[3]
        if self.text is None:
            assert self.start is not None
            return self.start()
        return np.array([start for start, _ in self.text.values()])

    @functools.cached_property
    def model(self) -> Callable:
        """The vector field in JAX."""
        if self.text is None:
            assert self.field is not None
            return self.field
        rates = [compile(rate, self.name, "eval") for _, rate in self.text.values()]
        names = list(self.text)

        def field(t: Any, y: jax.Array, args: Any) -> jax.Array:
            del args
            known = dict(zip(names, y)) | dict(t=t, sqrt=jnp.sqrt, exp=jnp.exp, pow=pow)
            return jnp.stack([jnp.asarray(eval(rate, known), y.dtype) for rate in rates])

        return field

    @functools.cached_property
    def machine(self) -> Callable:
        """`rate(t, y, out)` in machine code."""
        import numba

        if self.tables is not None:
            return numba.njit(_network_compiled(*self.tables()))
        if self.text is None:
            return numba.njit(self.compiled)
        reads = [f"    {name} = y[{i}]" for i, name in enumerate(self.text)]
        writes = [f"    out[{i}] = {rate}" for i, (_, rate) in enumerate(self.text.values())]
        found: dict[str, Any] = dict(sqrt=math.sqrt, exp=math.exp)
        exec("\n".join(["def rate(t, y, out):", *reads, *writes]), found)
        return numba.njit(found["rate"])

    @property
    def diffsol(self) -> str | None:
        """In diffsol's language; None where it has none."""
        if self.text is None:
            return self.language
        own = {name: f"unknown{i}" for i, name in enumerate(self.text)}  # `u` and others mean something there
        starts = ", ".join(f"{own[name]} = {start!r}" for name, (start, _) in self.text.items())
        name = re.compile(r"[a-z]\w*")
        rates = ", ".join(name.sub(lambda m: own.get(m[0], m[0]), rate) for _, rate in self.text.values())
        return f"in_i {{ one = 1 }} u_i {{ {starts} }} F_i {{ {rates} }}"


ROBERTSON: Text = {
    "a": (1.0, "-0.04*a + 1e4*b*c"),
    "b": (0.0, "0.04*a - 1e4*b*c - 3e7*b*b"),
    "c": (0.0, "3e7*b*b"),
}
HIRES: Text = {
    "a": (1.0, "-1.71*a + 0.43*b + 8.32*c + 0.0007"),
    "b": (0.0, "1.71*a - 8.75*b"),
    "c": (0.0, "-10.03*c + 0.43*d + 0.035*e"),
    "d": (0.0, "8.32*b + 1.71*c - 1.12*d"),
    "e": (0.0, "-1.745*e + 0.43*f + 0.43*g"),
    "f": (0.0, "-280.0*f*h + 0.69*d + 1.71*e - 0.43*f + 0.69*g"),
    "g": (0.0, "280.0*f*h - 1.81*g"),
    "h": (0.0057, "-280.0*f*h + 1.81*g"),
}
OREGO: Text = {
    "a": (1.0, "77.27*(b + a*(1.0 - 8.375e-6*a - b))"),
    "b": (2.0, "(c - (1.0 + a)*b)/77.27"),
    "c": (3.0, "0.161*(a - c)"),
}
E5: Text = {
    "a": (1.76e-3, "-7.89e-10*a - 1.1e7*a*c"),
    "b": (0.0, "7.89e-10*a - 1.13e9*b*c"),
    "c": (0.0, "7.89e-10*a - 1.1e7*a*c + 1.13e3*d - 1.13e9*b*c"),
    "d": (0.0, "1.1e7*a*c - 1.13e3*d"),
}
VAN_DER_POL: Text = {"x": (2.0, "v"), "v": (0.0, "1e3*(1.0 - x*x)*v - x")}
AKZO: Text = {  # with the algebraic variable, f = 115.83 a d, put in
    "a": (0.444, "-2.0*18.7*pow(a, 4)*sqrt(b) + 0.58*c*d - 0.58/34.4*a*e - 0.09*a*d*d"),
    "b": (
        0.00123,
        "-0.5*18.7*pow(a, 4)*sqrt(b) - 0.09*a*d*d - 0.5*0.42*115.83*115.83*a*a*d*d*sqrt(b) + 3.3*(0.9/737.0 - b)",
    ),
    "c": (0.0, "18.7*pow(a, 4)*sqrt(b) - 0.58*c*d + 0.58/34.4*a*e"),
    "d": (0.007, "-0.58*c*d + 0.58/34.4*a*e - 2.0*0.09*a*d*d"),
    "e": (0.0, "0.58*c*d - 0.58/34.4*a*e + 0.42*115.83*115.83*a*a*d*d*sqrt(b)"),
}
HENON_HEILES: Text = {
    "p": (0.1, "u"),
    "q": (0.0, "v"),
    "u": (0.0, "-p - 2.0*p*q"),
    "v": (0.5, "-q - p*p + q*q"),
}
POLLUTION = """
0.35 1 > 2 3 | 26.6 2 4 > 1 | 1.23e4 5 2 > 6 1 | 8.6e-4 7 > 5 5 8 | 8.2e-4 7 > 8 | 1.5e4 7 6 > 8 5 | 1.3e-4 9 > 10 8 5
2.4e4 9 6 > 11 | 1.65e4 11 2 > 10 1 12 | 9e3 11 1 > 13 | 0.022 13 > 11 1 | 1.2e4 10 2 > 14 1 | 1.88 14 > 7 5
1.63e4 1 6 > 15 | 4.8e6 3 > 4 | 3.5e-4 4 > 16 | 0.0175 4 > 3 | 1e8 16 > 6 6 | 4.44e11 16 > 3 | 1240.0 17 6 > 18 5
2.1 19 > 2 | 5.78 19 > 1 3 | 0.0474 1 4 > 19 | 1780.0 19 1 > 20 | 3.12 20 > 1 19
"""
"""The 25 reactions of POLLU: a rate constant, the numbers of what reacts, and of what is made."""


def of_reactions(table: str, start: dict[int, float], count: int) -> Text:
    """The equations of a table of reactions with mass action.

    Args:
        table: Reactions, each a rate constant, the numbers of what reacts from one, `>`, and of what is made.
        start: How much there is at the start, where there is any.
        count: The number of species.
    """
    rates: list[list[str]] = [[] for _ in range(count)]
    for reaction in table.replace("\n", "|").split("|"):
        if not reaction.strip():
            continue
        (constant, *reacting), made = (side.split() for side in reaction.split(">"))
        speed = "*".join([repr(float(constant)), *(f"y{i}" for i in reacting)])
        change = {i: made.count(i) - reacting.count(i) for i in dict.fromkeys([*reacting, *made])}
        for i, n in change.items():
            if n:
                rates[int(i) - 1].append(f"{float(n)}*{speed}")
    return {f"y{i + 1}": (start.get(i + 1, 0.0), " + ".join(terms) or "0.0") for i, terms in enumerate(rates)}


def pleiades() -> Text:
    """Seven stars in a plane, of the masses one to seven."""
    x, y = [3.0, 3.0, -1.0, -3.0, 2.0, -2.0, 2.0], [3.0, -3.0, 2.0, 0.0, 0.0, -4.0, 4.0]
    u, v = [0.0, 0.0, 0.0, 0.0, 0.0, 1.75, -1.5], [0.0, 0.0, 0.0, -1.25, 1.0, 0.0, 0.0]
    pulls: dict[str, tuple[float, str]] = {}
    for axis, speed, starts in (("x", "u", u), ("y", "v", v)):
        for i in range(7):
            terms = [
                f"{j + 1.0}*({axis}{j} - {axis}{i})/pow((x{j} - x{i})*(x{j} - x{i}) + (y{j} - y{i})*(y{j} - y{i}), 1.5)"
                for j in range(7)
                if j != i
            ]
            pulls[f"{speed}{i}"] = (starts[i], " + ".join(terms))
    places = {f"x{i}": (x[i], f"u{i}") for i in range(7)} | {f"y{i}": (y[i], f"v{i}") for i in range(7)}
    return places | pulls


def _groups_compiled(t, y, out):  # no annotations: Numba compiles it
    n = y.size // 3
    for i in range(n):
        slow = -0.04 * y[i] + 1e4 * y[n + i] * y[2 * n + i]
        fast = 3e7 * y[n + i] * y[n + i]
        out[i], out[n + i], out[2 * n + i] = slow, -slow - fast, fast


def _line_compiled(t, y, out):
    n = y.size // 2
    spread = (n + 1) ** 2 / 50
    for i in range(n):
        u, v = y[2 * i], y[2 * i + 1]
        left_u, left_v = (y[2 * i - 2], y[2 * i - 1]) if i > 0 else (1.0, 3.0)
        right_u, right_v = (y[2 * i + 2], y[2 * i + 3]) if i < n - 1 else (1.0, 3.0)
        out[2 * i] = 1 + u * u * v - 4 * u + spread * (left_u - 2 * u + right_u)
        out[2 * i + 1] = 3 * u - u * u * v + spread * (left_v - 2 * v + right_v)


def _plane_compiled(t, y, out):
    side = int(round((y.size // 2) ** 0.5))
    spread = side**2 / 500
    for i in range(side):
        for j in range(side):
            here = 2 * (i * side + j)
            up, down = 2 * (max(i - 1, 0) * side + j), 2 * (min(i + 1, side - 1) * side + j)
            left, right = 2 * (i * side + max(j - 1, 0)), 2 * (i * side + min(j + 1, side - 1))
            u, v = y[here], y[here + 1]
            out[here] = 1 + u * u * v - 4.4 * u + spread * (y[up] + y[down] + y[left] + y[right] - 4 * u)
            out[here + 1] = (
                3.4 * u - u * u * v + spread * (y[up + 1] + y[down + 1] + y[left + 1] + y[right + 1] - 4 * v)
            )


def _groups_language(groups: int) -> str:
    return f"""
        in_i {{ one = 1 }}
        u_i {{ (0:{groups}): x = 1, ({groups}:{2 * groups}): y = 0, ({2 * groups}:{3 * groups}): z = 0 }}
        F_i {{ -0.04 * x_i + 1e4 * y_i * z_i, 0.04 * x_i - 1e4 * y_i * z_i - 3e7 * y_i * y_i, 3e7 * y_i * y_i }}
    """


def _groups(groups: int) -> Contested:
    return Contested(
        f"Robertson in {groups} groups",
        4e10,
        ratio=1e-4,
        floor=1e-6,
        field=robertson_groups,
        compiled=_groups_compiled,
        start=lambda: np.concatenate([np.ones(groups), np.zeros(2 * groups)]),
        language=_groups_language(groups),
    )


def _network_compiled(taken: np.ndarray, made: np.ndarray, rates: np.ndarray, start: np.ndarray) -> Callable:
    """The rate equations of a network, by loops over its tables."""
    nothing = start.size

    def rate(t, y, out):  # no annotations: Numba compiles it
        out[:] = 0.0
        for j in range(rates.size):
            speed = rates[j] * y[taken[j, 0]]
            if taken[j, 1] < nothing:
                speed *= y[taken[j, 1]]
            for i in range(2):
                if taken[j, i] < nothing:
                    out[taken[j, i]] -= speed
                if made[j, i] < nothing:
                    out[made[j, i]] += speed

    return rate


def _network_field(network: Callable[[], Callable]) -> Callable:
    """The same as a network of sciml, which is made at the first call."""

    @functools.cache
    def made() -> Callable:
        with jax.ensure_compile_time_eval():
            return network()

    return lambda t, y, args: made()(t, y, args)


def _network_language(taken: np.ndarray, made: np.ndarray, rates: np.ndarray, start: np.ndarray) -> str:
    terms: list[list[str]] = [[] for _ in start]
    for inputs, outputs, constant in zip(taken, made, rates):
        speed = "*".join([repr(float(constant)), *(f"s{i}" for i in inputs if i < start.size)])
        for sign, species in (("-", inputs), ("+", outputs)):
            for i in species:
                if i < start.size:
                    terms[i].append(f"{sign} {speed}")
    starts = ", ".join(f"s{i} = {float(x)!r}" for i, x in enumerate(start))
    return f"in_i {{ one = 1 }} u_i {{ {starts} }} F_i {{ {', '.join(' '.join(t).lstrip('+ ') for t in terms)} }}"


def _phosphorylation(sites: int) -> Contested:
    def network() -> Callable:
        return sciml.models.ReactionNetwork.from_stoichiometry(*stoichiometry(sites), tables(sites)[2])

    return Contested(
        f"Phosphorylation of {sites} sites",
        10.0,
        ratio=1e-3,
        floor=1e-6,
        field=_network_field(network),
        tables=lambda: tables(sites),
        language=_network_language(*tables(sites)) if sites <= 3 else None,
        linear=(("linsolver", "dense"),),
    )


def _bionetgen(name: str, file: str, t1: float) -> Contested:
    """A network in numbers of molecules."""
    return Contested(
        name,
        t1,
        ratio=1.0,
        floor=1.0,
        field=_network_field(lambda: network_of(file)),
        tables=lambda: tables_of(file),
        linear=(("linsolver", "dense"),),
    )


PROBLEMS: tuple[Contested, ...] = (
    Contested("ROBER", 1e11, ROBERTSON, ratio=1e-12, floor=1e-16, members=True),
    Contested("HIRES", 321.8122, HIRES, members=True),
    Contested("OREGO", 360.0, OREGO, members=True),
    Contested("E5", 1e7, E5, ratio=1e-16, floor=1e-24, members=True),
    Contested("Van der Pol, mu = 1000", 2000.0, VAN_DER_POL),
    Contested("Chemical Akzo Nobel", 180.0, AKZO),
    Contested(
        "POLLU", 60.0, of_reactions(POLLUTION, {2: 0.2, 4: 0.04, 7: 0.1, 8: 0.3, 9: 0.01, 17: 0.007}, 20), ratio=1e-6,
    ),
    _groups(10),
    _groups(100),
    _phosphorylation(3),
    _phosphorylation(4),
    _bionetgen("Growth factors and their receptor", "egfr", 10.0),
    _bionetgen("The receptor of B cells", "bcr", 100.0),
    Contested(
        "Brusselator on a line, 200 cells", 10.0, floor=1e-3, field=brusselator, compiled=_line_compiled,
        start=lambda: start_on_a_line(200), linear=(("linsolver", "band"), ("lband", 2), ("uband", 2)),
    ),
    Contested(
        "Brusselator on 24 x 24 cells", 1.0, floor=1e-3, field=brusselator_on_a_grid, compiled=_plane_compiled,
        start=lambda: start_on_a_grid(24), linear=(("linsolver", "gmres"),), iterates=True,
    ),
    Contested("Pleiades", 3.0, pleiades(), stiff=False),
    Contested("Henon-Heiles", 100.0, HENON_HEILES, stiff=False),
)  # fmt: skip
