"""A fingerprint of the inputs of a run, in named parts, so that a mismatch can name the part that differs."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._digests import FOREIGN, Hasher, digest_of, digest_of_array, is_key
from .._installation import DISTRIBUTION
from ._atomic import StoreError
from ._hosts import checksum, is_spread

FILE = "file "
"""Begins the entry of a module of the user; other entries are versions of packages."""


def sources() -> dict[str, str]:
    """Returns the versions of loaded packages, and a digest of the file of every other loaded module, by name."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if not isinstance(module, types.ModuleType):
            continue
        known = object.__getattribute__(module, "__dict__")  # loads nothing that is imported lazily
        file, version = known.get("__file__"), known.get("__version__")
        if not isinstance(file, str):
            continue
        if not file.startswith(FOREIGN):
            digest = _digest_of(file)
            found |= {name: FILE + digest} if digest else {}
        elif "." not in name and isinstance(version, str):
            found[name] = version
    return found


def _digest_of(file: str) -> str | None:
    try:
        stat = os.stat(file)
        return _digest(file, stat.st_mtime_ns, stat.st_size) if file.endswith(".py") else None
    except OSError:
        return None


@functools.cache
def _digest(file: str, *changed: int) -> str:
    del changed  # only for the cache
    with open(file, "rb") as content:
        return hashlib.blake2b(content.read(), digest_size=4).hexdigest()


_MOST_LEAVES = 100
"""How many leaves of a part are described one by one."""

_PROGRAM = "the compiled program"


class Part(NamedTuple):
    """One part of a fingerprint.

    Attributes:
        digest: Of all that belongs to it.
        text: A description of it, in a line, for people.
        leaves: Its leaves, by path, if there are not too many: a digest and a line each.
        follows: Whether it depends on other parts, and therefore adds no information if these differ.
        compiled_for: For a program, the number of devices and the shapes that it was compiled for: programs for
            different ones cannot be compared, and count as the same.
    """

    digest: str
    text: str
    leaves: Mapping[str, Sequence[str]] = types.MappingProxyType({})
    follows: bool = False
    compiled_for: str = ""

    def differs(self, other: "Part") -> bool:
        """Whether it is another one than `other`."""
        return self.compiled_for == other.compiled_for and self.digest != other.digest


class Fingerprint(NamedTuple):
    """The inputs on which a run depends.

    Attributes:
        parts: By name, in the order given.
        sources: Versions of loaded packages and digests of loaded files by module. They do not belong to the inputs of
            a run, but name the likely cause if a program differs.
    """

    parts: dict[str, Part]
    sources: Mapping[str, str] = types.MappingProxyType({})

    @property
    def digest(self) -> str:
        """One digest of all parts."""
        return digest_of("fingerprint", *(f"{name}={part.digest}" for name, part in sorted(self.parts.items())))

    def to_json(self) -> dict[str, Any]:
        """Returns the part of it that a manifest stores."""
        parts = {name: _to_json(part) for name, part in self.parts.items()}
        return {"digest": self.digest, "parts": parts, "sources": dict(self.sources)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Fingerprint":
        """Returns the fingerprint that a manifest holds."""
        return cls({name: Part(**part) for name, part in value["parts"].items()}, value.get("sources", {}))

    def differences(self, other: "Fingerprint") -> list[str]:
        """Returns a line for each part, or leaf of it, that differs: its name, and its values here and in `other`."""
        names = dict.fromkeys((*self.parts, *other.parts))
        follow = {name for name in names if any(name in f.parts and f.parts[name].follows for f in (self, other))}
        lines = self._lines(other, [n for n in names if n not in follow]) or self._lines(other, sorted(follow))
        both = [(self.parts[n], other.parts[n]) for n in follow if n in self.parts and n in other.parts]
        return lines + (self._changed_sources(other) if any(mine.differs(theirs) for mine, theirs in both) else [])

    def _changed_sources(self, other: "Fingerprint") -> list[str]:
        """Returns a line about the packages and files that changed, which may be why a program differs."""
        both = [name for name in self.sources if name in other.sources]
        changed = [_source(n, self.sources[n], other.sources[n]) for n in both if self.sources[n] != other.sources[n]]
        more = [f"and {len(changed) - 5} more"] if len(changed) > 5 else []
        return [f"changed meanwhile: {', '.join(changed[:5] + more)}"] if changed else []

    def _lines(self, other: "Fingerprint", names: Sequence[str]) -> list[str]:
        lines = []
        for name in names:
            mine, theirs = self.parts.get(name), other.parts.get(name)
            if mine is None or theirs is None:
                lines.append(
                    f"`{name}`: {'absent' if mine is None else mine.text} before, "
                    f"{'absent' if theirs is None else theirs.text} now"
                )
            elif mine.differs(theirs):
                lines += _leaves_that_differ(name, mine, theirs) or [_line(name, mine.text, theirs.text)]
        return lines


def fingerprint(**parts: Any) -> Fingerprint:
    """Returns the fingerprint of named values, and of versions and platform.

    Arrays count by dtype, shape and bytes, random keys by their data, functions by compiled code, defaults, closed-over
    values and the globals they read, classes by their functions, modules and other objects by their contents. Code of
    installed packages counts by its name, and code that is reached in other ways than by names does not count: the
    compiled `program` shows whether it has changed.

    Args:
        parts: The inputs of the run, by name: PyTrees, functions, modules, numbers, strings.

    Raises:
        TypeError: If a value is traced, or its contents cannot be compared.
    """
    found = {
        name: Part(Hasher(name, _of_array).digest(value), describe(value), leaves_of(name, value))
        for name, value in parts.items()
    }
    versions = _versions()
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    found["versions"] = Part(digest_of("versions", text), text)
    where = f"{jax.default_backend()} {platform.machine()}, {jnp.result_type(float)} by default"
    found["platform"] = Part(digest_of("platform", where), where)
    return Fingerprint(found, sources())


def program(lowered: str, arrays: Any = (), shapes: str = "") -> Part:
    """Returns the part that represents all code of a run: the program that XLA compiles.

    Args:
        lowered: The text of the program, as JAX lowers it: with every constant, without lines of source code.
        arrays: The arrays with which the program is called and that no other part of the fingerprint contains.
        shapes: The shapes of arguments that may have other shapes in the next call of the same run.
    """
    # the name of the outermost function, and addresses of Python objects
    text = re.sub(r"^module @\S+|backend_config = \"\d+\"", "", lowered)
    count = re.search(r"num_partitions = (\d+)", text)
    return Part(
        digest_of("program", text, Hasher("program", _of_array).digest(arrays, strict=False)),
        _PROGRAM,
        follows=True,
        compiled_for=f"{1 if count is None else count[1]} devices {shapes}".strip(),
    )


def _of_array(x: Any) -> str:
    """Returns the digest of an array, of which every process may hold a part."""
    return digest_of("spread", str(x.dtype), str(x.shape), checksum(x)) if is_spread(x) else digest_of_array(x)


def calls_python(lowered: str) -> bool:
    """Whether a program calls back into Python, whose code its text does not hold."""
    return "callback" in lowered


def check_same(before: Fingerprint, now: Fingerprint, *, where: str) -> None:
    """Checks that a store's run is the run to be resumed.

    Raises:
        StoreError: If not; the message names the parts that differ.
    """
    lines = before.differences(now)
    if lines:
        listed = "\n".join(f"  {line}" for line in lines)
        raise StoreError(
            f"{where} contains a different run, so it cannot be resumed:\n{listed}\n"
            "Use another path for the new run, or the same arguments as the stored run."
        )


def describe(value: Any) -> str:
    """Returns a value in a line."""
    if isinstance(value, Callable) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        shown = value.size <= 4 and not is_key(value) and not is_spread(value)
        return f"{value.dtype}{list(value.shape)}" + (f" {np.asarray(value).tolist()}" if shown else "")
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)[:80]
    leaves = [x for x in jax.tree.leaves(value) if isinstance(x, (np.ndarray, np.generic, jax.Array))]
    kind = type(value).__name__
    if not leaves:
        text = repr(value)
        return text if len(text) <= 80 and "\n" not in text and " at 0x" not in text else kind
    shown = ", ".join(map(describe, leaves[:3])) + (", ..." if len(leaves) > 3 else "")
    return f"{kind} of {shown}"


def _to_json(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {"digest": part.digest, "text": part.text}
    if part.leaves:
        found["leaves"] = dict(part.leaves)
    found |= {"follows": True} if part.follows else {}
    return {**found, "compiled_for": part.compiled_for} if part.compiled_for else found


def leaves_of(name: str, value: Any) -> dict[str, tuple[str, str]]:
    """Returns digest and description of the leaves of a nested value."""
    nested = jax.tree_util.tree_leaves_with_path(value)
    if len(nested) > _MOST_LEAVES or (len(nested) == 1 and not nested[0][0]):
        return {}
    found = {}
    for keys, x in nested:
        path = jax.tree_util.keystr(keys)
        found[path] = (Hasher(name, _of_array).digest(x, path)[:8], describe(x))
    return found


def _leaves_that_differ(name: str, mine: Part, theirs: Part) -> list[str]:
    """Returns a line for each of the first leaves that differ; none where it is not the leaves that differ."""
    missing = ("", "absent")
    lines = []
    for path in dict.fromkeys((*mine.leaves, *theirs.leaves)):
        (before, old), (now, new) = (part.leaves.get(path, missing) for part in (mine, theirs))
        if before != now:
            lines.append(_line(f"{name}{path}", old, new))
    if not mine.leaves or not theirs.leaves:
        return []
    return lines if len(lines) <= 5 else [*lines[:5], f"and {len(lines) - 5} more of `{name}`"]


def _line(name: str, before: str, now: str) -> str:
    if before == now == _PROGRAM:
        return f"`{name}`: the model, or a function that the run calls, computes something different than before"
    if before == now:
        return f"`{name}`: the description is the same ({before}), but its values or its code differ"
    return f"`{name}`: {before} before, {now} now"


def _source(name: str, before: str, now: str) -> str:
    if before.startswith(FILE) and now.startswith(FILE):
        return f"the file of module `{name}`"
    return f"`{name}` ({before} before, {now} now)"


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("jax", "jaxlib", "sciml", "diffrax", "equinox"):
        try:
            versions[name] = importlib.metadata.version(DISTRIBUTION if name == "sciml" else name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions
