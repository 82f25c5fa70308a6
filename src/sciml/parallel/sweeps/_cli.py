"""A sweep from the command line, whole or in shards: for arrays of jobs.

    python -m sciml.parallel run spec.py --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
    python -m sciml.parallel run spec.py

The file holds a function `sweep()` that returns the arguments of `sciml.parallel.sweep` by name, with a `store`. Shard
`K/N` runs every `N`th block, from block `K` on, and writes it to the store. Without `--shard`, missing blocks are run,
failed members are retried according to `on_fail`, and the summary is printed.
"""

import argparse
import functools
import importlib.util
import pathlib
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._progress import reporting
from ._sweep import prepare, sweep


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit status: 2 where the arguments cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m sciml.parallel", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a sweep, or a shard of it")
    run.add_argument("spec", type=pathlib.Path, help="a Python file with a function sweep() that returns the arguments")
    run.add_argument("--shard", type=_shard, metavar="K/N", help="run only the blocks K, K + N, ...; K counts from 0")
    run.add_argument("--progress", action="store_true", help="show a progress bar")
    given = parser.parse_args(arguments)
    try:
        options = _arguments_of(given.spec)
    except ValueError as error:
        parser.error(str(error))
    if given.shard is None:
        print(sweep(**options, progress=given.progress).summary())
    else:
        print(run_shard(options, *given.shard, progress=given.progress))
    return 0


def run_shard(options: dict[str, Any], shard: int, shards: int, *, progress: bool) -> str:
    """Runs every block of a sweep whose number is `shard` modulo `shards`, and reports it."""
    start = time.perf_counter()
    options.pop("throw", None)  # a shard has not seen all members
    work = prepare(**options)
    numbers = range(shard, work.plan.blocks, shards)
    with reporting(progress, work.n, unit="member", name=f"shard {shard}/{shards}") as report:
        work.first_pass(numbers, report)
    return (
        f"shard {shard}/{shards}: {len(numbers)} of {work.plan.blocks} blocks in {options['store']} after "
        f"{time.perf_counter() - start:.3g} s; {work.collected.failed} of {work.collected.done} members failed"
    )


def _arguments_of(path: pathlib.Path) -> dict[str, Any]:
    """Returns the arguments that the file's function `sweep` returns.

    Raises:
        ValueError: If there is no such file or function, or no store.
    """
    if not path.is_file():
        raise ValueError(f"the file {str(path)!r} does not exist")
    path = path.resolve()
    sys.path.insert(0, str(path.parent))  # for what it imports, and for workers that import it by name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _run_of(path, functools.partial(spec.loader.exec_module, module))
    make: Callable[[], Any] | None = getattr(module, "sweep", None)
    if not callable(make) or make is sweep:
        raise ValueError(
            f"{path.name} must define a function `sweep()` that returns a dictionary of arguments for "
            "`sciml.parallel.sweep`, such as `def sweep(): return dict(fn=run, params=members, store='results')`"
        )
    options = _run_of(path, make)
    if not isinstance(options, Mapping):
        raise ValueError(
            f"`sweep()` of {path.name} must return a dictionary of arguments, but returned a {type(options).__name__}"
        )
    options = dict(options)
    if options.get("store") is None:
        raise ValueError(f"`sweep()` of {path.name} must include a `store`, or the results would be lost")
    options.pop("progress", None)
    return options


def _run_of(path: pathlib.Path, call: Callable[[], Any]) -> Any:
    """Calls what a file defines.

    Raises:
        ValueError: If it raises; the message names the line of the file.
    """
    try:
        return call()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if pathlib.Path(frame.filename) == path]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines = [error.lineno]
        where = f" in line {lines[-1]}" if lines else ""
        raise ValueError(f"{path.name} raised {type(error).__name__}{where}: {error}") from error


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not int(found[1]) < int(found[2]):
        raise argparse.ArgumentTypeError(
            f"a shard must be K/N with K from 0 to N - 1, got {text!r}; for a SLURM array that starts at 0 use "
            "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
        )
    return int(found[1]), int(found[2])
