"""The page of the table of choices: `python -m tests.choices_page` writes it into docs/guides."""

import dataclasses
import pathlib

from sciml._choices import Choices

WRITTEN = pathlib.Path(__file__).resolve().parents[1] / "docs" / "guides" / "choices.md"

HEAD = """\
# Choices between engines, loops and formats

<!-- Written by `python -m tests.choices_page` from `src/sciml/_choices.py`. -->

`solve` selects among several programs for the same computation: members over lanes or one after another, a matrix
written out or factorised by LAPACK, steps that are gathered or not. This page lists every threshold that it compares.
A choice changes how fast a program runs or compiles, or its memory. Results differ at most by rounding.

`inspect.choose` replaces entries in a block, for example to measure another value on your machine:

```python
import jax
import jax.numpy as jnp
import sciml
from sciml import inspect


def end(rate):
    return sciml.solve(lambda t, y, args: -rate * y, jnp.ones(3), t0=0.0, t1=1.0).ys


rates = jnp.linspace(1.0, 2.0, 4)
with inspect.choose({"batching.one_by_one_from": 2}):
    found = inspect.report(jax.jit(jax.vmap(end)), rates)
assert found.program.ways == ("4 members one after another",)
assert "batching.one_by_one_from" in found.program.choices
```

`inspect.report` prints how members run, and a row "choice" for each entry that selected a part of the program, with its
value and the reason. `inspect.jacobian` prints the format of a model's matrices. A function that was compiled before
is compiled again within a block, since programs depend on the table.

`inspect.choose("small")` selects programs that compile faster and run slower: the gradient of a stiff system of eight
unknowns compiles in half of the time. `inspect.compile_time(fn, *args)` measures what takes long to compile.

The column "Set by" names the benchmark whose numbers set the value, `python -m benchmarks NAME`. No benchmark is
recorded for the other values.
"""


def page() -> str:
    """The page as Markdown."""
    lines = [HEAD]
    for group in dataclasses.fields(Choices):
        title, _, rest = group.type.__doc__.partition(":")
        lines += [f"## {title.strip('. ')}", ""]
        if rest:
            lines += [f"{rest.strip()[0].upper()}{rest.strip()[1:]}", ""]
        lines += ["| Name | Default | Unit | Reason | Set by |", "|---|---|---|---|---|"]
        for entry in dataclasses.fields(group.type):
            about = entry.metadata
            benchmark = f"`{about['benchmark']}`" if about["benchmark"] else ""
            value = ", ".join(map(written, entry.default if isinstance(entry.default, tuple) else (entry.default,)))
            name = f"`{group.name}.{entry.name}`"
            lines.append(f"| {name} | {value} | {about['unit']} | {about['reason']} | {benchmark} |")
        lines.append("")
    return "\n".join(lines)


def written(value: float) -> str:
    """A number with its thousands apart."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


if __name__ == "__main__":
    WRITTEN.write_text(page())
