"""Time to the first number, by its parts: programs of guides and tutorials, compared with other libraries.

Every row is a process of its own without a cache on disk, and its import does not count. Trace, lowering, compilation
and the run are timed apart, and so is a second run, which shows what is left. Times are processor time, which other
work on the machine hardly changes.
`python -m benchmarks.first_results WORDS` measures only the rows with these words in their names.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sciml._jax.programs import equations
from sciml.inspect._hlo_text import parse

from ._first_programs import PROGRAMS, Make, Program
from ._harness import Candidate, Group, Measured, duration, note

MINUTES = 10  # after which a row is given up
WAYS = "forward", "gradient"


@dataclasses.dataclass(frozen=True)
class Facts:
    """What one process measured; times are in seconds."""

    trace: float
    lower: float
    compile: float
    run: float
    again: float
    equations: int | None = None
    instructions: int | None = None
    programs: int = 1

    @property
    def first(self) -> float:
        """The time to the first result."""
        return self.trace + self.lower + self.compile + self.run


def _timed(fn: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    found = jax.block_until_ready(fn())
    return found, time.process_time() - start


def _gradient(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def total(x: Any) -> jax.Array:
        return sum((jnp.sum(y**2) for y in jax.tree.leaves(fn(x))), jnp.zeros(()))

    return jax.grad(total, allow_int=True)


def measured(program: Program, way: str) -> Facts:
    """Measures the first result of a program in this process."""
    if program.whole:
        return _of_call(program)
    fn = jax.jit(_gradient(program.fn) if way == "gradient" else program.fn)
    traced, trace = _timed(lambda: fn.trace(program.x))
    lowered, lower = _timed(traced.lower)
    compiled, compilation = _timed(lowered.compile)
    _, run = _timed(lambda: compiled(program.x))
    _, again = _timed(lambda: compiled(program.x))
    size = sum(1 for _ in equations(traced.jaxpr.jaxpr))
    instructions = sum(map(len, parse(compiled.as_text()).computations.values()))
    return Facts(trace, lower, compilation, run, again, size, instructions)


def _of_call(program: Program) -> Facts:
    """Measures a call from Python, by what JAX says of its compilations."""
    found = dict.fromkeys(("jaxpr_to_mlir_module_duration", "backend_compile_duration"), 0.0)
    count = [0]

    def listen(event: str, seconds: float, **_: Any) -> None:
        name = event.rsplit("/", 1)[-1]
        if name in found:
            found[name] += seconds
            count[0] += name == "backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    start = time.perf_counter()
    _, first = _timed(lambda: program.fn(program.x))
    share = first / (time.perf_counter() - start)  # JAX's durations are of a clock on the wall
    (lower, compilation), programs = (share * x for x in found.values()), count[0]
    _, again = _timed(lambda: program.fn(program.x))
    run = min(again, first - lower - compilation)
    return Facts(first - lower - compilation - run, lower, compilation, run, again, programs=programs)


def _rows() -> dict[str, tuple[str, str, Make]]:
    """Returns family, way and program of every row by its label."""
    return {
        f"{name}, {way}": (family, way, make)
        for family, programs in PROGRAMS.items()
        for name, make in programs.items()
        for way in WAYS
    }


def _in_a_process(label: str) -> Facts | None:
    """Returns what a fresh process measured, None where the row has no such way."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_DISABLE_MOST_OPTIMIZATIONS"}
    note(label)
    command = [sys.executable, "-m", "benchmarks.first_results", "--alone", label]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the process died")
    found = json.loads(done.stdout.splitlines()[-1])
    return None if found is None else Facts(**found)


def _alone(label: str) -> None:
    """Measures a row in this process and prints it."""
    jax.config.update("jax_enable_x64", True)
    _, way, make = _rows()[label]
    program = make()
    skip = program.whole and way == "gradient"
    print(json.dumps(None if skip else dataclasses.asdict(measured(program, way))))


def _table(found: dict[str, Facts | None]) -> Callable[[Group, list[Measured]], str]:
    def table(group: Group, rows: list[Measured]) -> str:
        head = "trace", "lower", "compile", "run", "first result", "over the peer", "again", "equations", "HLO"
        lines = [
            f"### {group.title}\n",
            "| | " + " | ".join(head) + " |",
            "| --- |" + " ---: |" * len(head),
        ]
        for row in rows:
            label, facts = row.label.replace(" | ", " by "), found.get(row.label)
            if row.failure:
                lines.append(f"| {label} | {row.failure} |" + " |" * (len(head) - 1))
            if facts is None:
                continue
            times = (facts.trace, facts.lower, facts.compile, facts.run, facts.first)
            name, way = row.label.rsplit(", ", 1)
            peers = [f for x, f in found.items() if f and x.startswith(f"{name} | ") and x.endswith(way)]
            ratio = f"{facts.first / peers[0].first:.2f}" if peers else ""
            sizes = ["" if x is None else f"{x:,}" for x in (facts.equations, facts.instructions)]
            if facts.equations is None:
                sizes[0] = f"{facts.programs} programs"
            cells = [*map(duration, times), ratio, duration(facts.again), *sizes]
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
        total = sum(f.first for x, f in found.items() if f and " | " not in x)
        return "\n".join([*lines, f"\nFirst results without peers: {duration(total)} in all.\n"])

    return table


def groups(words: str = "") -> list[Group]:
    """Returns a group for each family of programs, of the rows with some words in their names."""
    made: dict[str, list[Candidate]] = {}
    found: dict[str, dict[str, Facts | None]] = {}
    for label, (family, _, _) in _rows().items():
        if words not in label:
            continue
        facts = found.setdefault(family, {})

        def build(label: str = label, facts: dict = facts) -> Callable[[], None]:
            facts[label] = _in_a_process(label)
            return lambda: None

        made.setdefault(family, []).append(Candidate(label, build))
    return [
        Group(f"First results: {family}", rows, repeats=0, compiled=False, table=_table(found[family]))
        for family, rows in made.items()
    ]


def main() -> None:
    """Measures the rows that are named."""
    from ._harness import environment, measure, report

    if sys.argv[1:2] == ["--alone"]:
        _alone(sys.argv[2])
        return
    report(environment())
    for group in groups(" ".join(sys.argv[1:])):
        rows = measure(group)
        assert group.table is not None
        report(group.table(group, rows))


if __name__ == "__main__":
    main()
