"""The public face: how many names there are, that each has one path, and that results are documented."""

import importlib
import inspect
import pathlib
import re
import typing

import pytest

import sciml
from sciml._former_names import FORMER
from sciml.verify import _lookup
from tests.test_architecture import public_names

ROOT = pathlib.Path(__file__).resolve().parents[1]

MOST = 440
"""How many public names there may be. A new name replaces an old one, or the reviewer agrees to raise this number.

Populations added six: `MultivariateNormal`, `npde`, `fisher_information`, `optimal_design`, `plot.etas` and
`plot.weighted_residuals`. Fits of PEtab problems added `plot.parameters` and `plot.observables`.

Dynamics beyond initial value problems (bifurcations, differential-algebraic equations, delays, noise, optimal control)
add up to 40 names in all; the last ones are noise with jumps (three) and `bifurcation.Forced`.
"""


def named() -> dict[str, object]:
    """The public names that are not packages, by their path."""
    return {name: value for name, value in public_names().items() if not inspect.ismodule(value)}


def returned(function: object) -> list[type]:
    """The classes in the annotation of what a function returns."""
    return list(_classes(inspect.signature(function).return_annotation))


def _classes(annotation: object):
    if inspect.isclass(annotation) and not typing.get_args(annotation):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _classes(part)


def test_there_are_few_names():
    assert len({id(value) for value in named().values()}) <= MOST


def test_each_name_has_one_path():
    paths: dict[int, list[str]] = {}
    for name, value in named().items():
        paths.setdefault(id(value), []).append(name)
    double = [sorted(names) for names in paths.values() if len(names) > 1]
    assert not double, double


@pytest.mark.parametrize("package, former", [*FORMER.items(), ("verify", _lookup.FORMER)])
def test_former_names_are_answered(package, former):
    module = importlib.import_module(f"sciml.{package}")
    for name, now in former.items():
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute '{name}': it is now `{now}`")):
            getattr(module, name)
    with pytest.raises(AttributeError, match=f"^module 'sciml.{package}' has no attribute 'xyzzy'$"):
        module.xyzzy


def test_each_name_is_shown():
    """In a guide, a tutorial, a lesson, or the introduction of a page of the reference: as code, not as a word."""
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.name != "changelog.md")]
    text = "\n".join(re.sub(r"^:::.*$", "", page.read_text(), flags=re.MULTILINE) for page in pages)
    code = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    code += [path.read_text() for path in (ROOT / "docs").rglob("*.py")]
    shown = set(re.findall(r"(?<=[.`])\w+|\b[A-Z]\w+", "\n".join(code)))
    for line in re.findall(r"^from sciml\S* import (?:\(([^)]*)\)|(.*))$", "\n".join(code), re.MULTILINE):
        shown.update(re.findall(r"\w+", " ".join(line)))
    hidden = [name for name in named() if name.rpartition(".")[2] not in shown]
    assert not hidden, " ".join(hidden)


def test_results_of_functions_are_in_the_reference():
    """Nobody needs to import the class of a result, but its attributes are documented."""
    shown = set(re.findall(r"^::: (\S+)$", "\n".join(x.read_text() for x in (ROOT / "docs/api").glob("*.md")), re.M))
    names = named()
    known = shown | {f"{value.__module__}.{value.__qualname__}" for value in names.values() if inspect.isclass(value)}
    missing = []
    for name, value in names.items():
        kinds = returned(value) if inspect.isroutine(value) else []
        paths = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind.__module__.startswith("sciml.")]
        missing += [f"{path}, which {name} returns" for path in paths if path not in known]
    assert not missing


def test_help_shows_types_by_their_names():
    """Aliases of jaxtyping would print all that they stand for, thirty lines of it before the summary of `solve`."""
    for name in ("solve", "simulate", "fit", "steady_state"):
        shown = str(inspect.signature(getattr(sciml, name)))
        assert "RealScalarLike" in shown and "jaxtyping.Real" not in shown and "jaxtyping.Shaped" not in shown, shown
