"""Run the benchmarks and print their tables: `python -m benchmarks [name ...]`."""

import argparse
import contextlib
import dataclasses
import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of a C loop that spin after it slow whoever comes next

from . import contest
from ._harness import environment, measure, note, report, table
from ._page import Tee, add
from ._registry import BENCHMARKS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run, of: {', '.join(BENCHMARKS)} (all)")
    parser.add_argument("--group", action="append", help="only groups with this in their title; may be given again")
    parser.add_argument("--repeats", type=int, help="timed repeats of each row, instead of each benchmark's own number")
    parser.add_argument("--page", action="store_true", help="write what is printed into docs/benchmarks.md, too")
    parser.add_argument("--quick", action="store_true", help="of the contest, two problems at one tolerance")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    if options.page and options.group:
        parser.error("--page writes whole benchmarks, and --group leaves groups out")
    start = time.perf_counter()
    report("## Benchmarks\n")
    if not options.page:
        report(f"{environment()}\n")
    for name in options.names or BENCHMARKS:
        with contextlib.redirect_stdout(Tee()) as printed:
            if options.page:
                report(f"{environment()}\n")
            if name == "contest":
                report(f"- {contest.versions()}\n")
            quick = options.quick and name == "contest"
            for group in contest.groups(quick=True) if quick else BENCHMARKS[name]():
                if options.group and not any(words in group.title for words in options.group):
                    continue
                note(f"[{time.perf_counter() - start:5.0f} s] {name}: {group.title}")
                if options.repeats:
                    group = dataclasses.replace(group, repeats=options.repeats)
                measured = measure(group)
                report((group.table or table)(group, measured))
                if group.finish is not None and (wrote := group.finish(measured)):
                    note(f"wrote {wrote}")
        if options.page:
            add(name, printed.getvalue())
    note(f"[{time.perf_counter() - start:5.0f} s] done")


if __name__ == "__main__":
    main()
