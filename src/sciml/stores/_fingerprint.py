"""A fingerprint of what a run depends on, in named parts, so that a mismatch can say which part differs."""

import functools
import importlib.metadata
import platform
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._installation import DISTRIBUTION
from ._atomic import StoreError
from ._hasher import Hasher, digest_of, is_key
from ._hosts import is_spread

_MOST_LEAVES = 100
"""How many leaves of a part are described one by one."""


class Part(NamedTuple):
    """One part of a fingerprint.

    Attributes:
        digest: Of all that belongs to it.
        text: What it is, in a line, for people.
        leaves: What it holds, by its path, if that is not too much: a digest and a line each.
        follows: Whether it depends on other parts, and so says nothing new where these differ.
    """

    digest: str
    text: str
    leaves: Mapping[str, Sequence[str]] = types.MappingProxyType({})
    follows: bool = False


class Fingerprint(NamedTuple):
    """What a run depends on.

    Attributes:
        parts: By name, in the order given.
    """

    parts: dict[str, Part]

    @property
    def digest(self) -> str:
        """One digest of all parts."""
        return digest_of("fingerprint", *(f"{name}={part.digest}" for name, part in sorted(self.parts.items())))

    def to_json(self) -> dict[str, Any]:
        """Returns what a manifest holds of it."""
        return {"digest": self.digest, "parts": {name: _to_json(part) for name, part in self.parts.items()}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Fingerprint":
        """Returns the fingerprint that a manifest holds."""
        return cls({name: Part(**part) for name, part in value["parts"].items()})

    def differences(self, other: "Fingerprint") -> list[str]:
        """Returns a line for each part, or each leaf of it, that differs: its name, what it was and is in `other`."""
        names = dict.fromkeys((*self.parts, *other.parts))
        follow = {name for name in names if any(name in f.parts and f.parts[name].follows for f in (self, other))}
        return self._lines(other, [n for n in names if n not in follow]) or self._lines(other, sorted(follow))

    def _lines(self, other: "Fingerprint", names: Sequence[str]) -> list[str]:
        lines = []
        for name in names:
            mine, theirs = self.parts.get(name), other.parts.get(name)
            if mine is None or theirs is None:
                lines.append(
                    f"`{name}`: {'absent' if mine is None else mine.text} before, "
                    f"{'absent' if theirs is None else theirs.text} now"
                )
            elif mine.digest != theirs.digest:
                lines += _leaves_that_differ(name, mine, theirs) or [_line(name, mine.text, theirs.text)]
        return lines


def fingerprint(**parts: Any) -> Fingerprint:
    """Returns the fingerprint of named values, and of versions and platform.

    Arrays count by dtype, shape and bytes, random keys by their data, functions by compiled code,
    defaults, what they close over and the globals they read, classes by their functions, modules and other objects
    by what they hold. Code of installed packages counts by its name: their versions stand for it.

    Args:
        parts: What the run depends on, by name: PyTrees, functions, modules, numbers, strings.

    Raises:
        TypeError: If a value is traced, or cannot be told from another one of its kind.
    """
    found = {
        name: Part(Hasher(name).digest(value), describe(value), leaves_of(name, value)) for name, value in parts.items()
    }
    versions = _versions()
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    found["versions"] = Part(digest_of("versions", text), text)
    where = f"{jax.default_backend()} {platform.machine()}, {jnp.result_type(float)} by default"
    found["platform"] = Part(digest_of("platform", where), where)
    return Fingerprint(found)


def check_same(before: Fingerprint, now: Fingerprint, *, where: str) -> None:
    """Checks that a store's run is the run that asks to go on with it.

    Raises:
        StoreError: If not; the message names the parts that differ.
    """
    lines = before.differences(now)
    if lines:
        listed = "\n".join(f"  {line}" for line in lines)
        raise StoreError(
            f"{where} holds another run than this one, so it cannot be resumed:\n{listed}\n"
            "Give another path for the new run, or call with what the stored run had."
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
    return {**found, "follows": True} if part.follows else found


def leaves_of(name: str, value: Any) -> dict[str, tuple[str, str]]:
    """Returns digest and description of the leaves of a nested value."""
    nested = jax.tree_util.tree_leaves_with_path(value)
    if len(nested) > _MOST_LEAVES or (len(nested) == 1 and not nested[0][0]):
        return {}
    found = {}
    for keys, x in nested:
        path = jax.tree_util.keystr(keys)
        found[path] = (Hasher(name).digest(x, path)[:8], describe(x))
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
    if before == now:
        return f"`{name}`: looks the same ({before}), but its values or its code differ"
    return f"`{name}`: {before} before, {now} now"


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("jax", "jaxlib", "sciml", "diffrax", "equinox"):
        try:
            versions[name] = importlib.metadata.version(DISTRIBUTION if name == "sciml" else name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions
