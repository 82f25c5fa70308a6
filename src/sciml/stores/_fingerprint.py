"""A fingerprint of what a run depends on, in named parts, so that a mismatch can say which part differs."""

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import inspect
import math
import os
import pathlib
import platform
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh

from .._installation import DISTRIBUTION
from ._atomic import StoreError
from ._hosts import checksum, is_spread

_FOREIGN = tuple(
    path + os.sep
    for path in {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {path for path in (*site.getsitepackages(), site.getusersitepackages())}
    | {str(pathlib.Path(__file__).parents[1])}
)
"""Where code lives that its version stands for: the standard library, installed packages and sciml."""

_MOST_LEAVES = 100
"""How many leaves of a part are described one by one."""


class Part(NamedTuple):
    """One part of a fingerprint.

    Attributes:
        digest: Of all that belongs to it.
        text: What it is, in a line, for people.
        leaves: What it holds, by the way to it, if that is not too much: a digest and a line each.
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
        return _digest("fingerprint", *(f"{name}={part.digest}" for name, part in sorted(self.parts.items())))

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
        name: Part(_Hasher(name).digest(value), describe(value), leaves_of(name, value))
        for name, value in parts.items()
    }
    versions = _versions()
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    found["versions"] = Part(_digest("versions", text), text)
    where = f"{jax.default_backend()} {platform.machine()}, {jnp.result_type(float)} by default"
    found["platform"] = Part(_digest("platform", where), where)
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
        shown = value.size <= 4 and not _is_key(value) and not is_spread(value)
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
    for path, x in nested:
        way = jax.tree_util.keystr(path)
        found[way] = (_Hasher(name).digest(x, way)[:8], describe(x))
    return found


def _leaves_that_differ(name: str, mine: Part, theirs: Part) -> list[str]:
    """Returns a line for each of the first leaves that differ; none where it is not the leaves that differ."""
    missing = ("", "absent")
    lines = []
    for way in dict.fromkeys((*mine.leaves, *theirs.leaves)):
        (before, old), (now, new) = (part.leaves.get(way, missing) for part in (mine, theirs))
        if before != now:
            lines.append(_line(f"{name}{way}", old, new))
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


def _digest(kind: str, *parts: str | bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in (kind, *parts):
        part = part.encode() if isinstance(part, str) else part
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_foreign(module: str | None) -> bool:
    """Whether a module is part of Python, an installed package or sciml."""
    if module in (None, "__main__", "__mp_main__"):
        return False
    found = sys.modules.get(str(module))
    file = getattr(found, "__file__", None)
    if file is None:
        return module in sys.builtin_module_names
    return str(file).startswith(_FOREIGN)


class _Hasher:
    """Digests of the values within one part. `path` says where in it, for errors."""

    def __init__(self, name: str):
        self.name = name
        self.open: dict[int, int] = {}  # what is being digested further out, against circles
        self.code: dict[Any, str] = {}  # functions and classes that have been digested

    def digest(self, value: Any, path: str = "", strict: bool = True) -> str:
        if id(value) in self.open:
            return _digest("again", str(self.open[id(value)]))
        simple = self._simple(value)
        if simple is not None:
            return simple
        is_code = isinstance(value, (types.FunctionType, type))
        if is_code and value in self.code:
            return self.code[value]
        self.open[id(value)] = len(self.open)
        try:
            found = self._compound(value, path, strict)
        finally:
            del self.open[id(value)]
        if is_code:
            self.code[value] = found
        return found

    def _simple(self, value: Any) -> str | None:
        if isinstance(value, Tracer):
            raise TypeError(f"`{self.name}` is traced by JAX, but a stored run needs its values: call from Python.")
        if _is_key(value):
            return _digest("key", str(jax.random.key_impl(value)), self._array(np.asarray(jax.random.key_data(value))))
        if is_spread(value):
            return _digest("spread", str(value.dtype), str(value.shape), checksum(value))
        if isinstance(value, (np.ndarray, np.generic, jax.Array)):
            return self._array(np.asarray(value)) if np.asarray(value).dtype != object else None
        if isinstance(value, enum.Enum):
            return _digest("enum", type(value).__qualname__, value.name)
        if isinstance(value, float) and math.isfinite(value):
            return _digest("float", value.hex())
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes, np.dtype)):
            return _digest(type(value).__name__, value if isinstance(value, bytes) else repr(value))
        if isinstance(value, types.ModuleType):
            return _digest("module", value.__name__)
        if isinstance(value, Mesh | AbstractMesh):  # on which devices it runs, and on how many, is no part of a run
            return _digest("mesh", *map(str, value.axis_names))
        return None

    def _array(self, x: np.ndarray) -> str:
        return _digest("array", str(x.dtype), str(x.shape), np.ascontiguousarray(x).tobytes())

    def _many(self, kind: str, values: Any, path: str, strict: bool) -> str:
        return _digest(kind, *(self.digest(x, f"{path}[{i}]", strict) for i, x in enumerate(values)))

    def _named(self, kind: str, values: Mapping[str, Any], path: str, strict: bool) -> str:
        parts = []
        for name, x in values.items():
            parts += [str(name), self.digest(x, f"{path}.{name}", strict)]
        return _digest(kind, *parts)

    def _compound(self, value: Any, path: str, strict: bool) -> str:
        if isinstance(value, Mapping):
            pairs = sorted(
                (self.digest(k, path, strict), self.digest(v, f"{path}[{k!r}]", strict)) for k, v in value.items()
            )
            return _digest("mapping", *(x for pair in pairs for x in pair))
        if isinstance(value, (list, tuple)):
            return self._many(type(value).__name__, value, path, strict)
        if isinstance(value, (set, frozenset)):
            return _digest("set", *sorted(self.digest(x, path, strict) for x in value))
        if isinstance(value, types.CodeType):
            return self._code(value, path)
        if isinstance(value, types.FunctionType):
            return self._function(value, path, strict)
        if isinstance(value, types.MethodType):
            return _digest(
                "method", self.digest(value.__func__, path, strict), self.digest(value.__self__, path, strict)
            )
        if isinstance(value, functools.partial):
            return self._many("partial", (value.func, value.args, value.keywords), path, strict)
        if isinstance(value, (staticmethod, classmethod)):
            return self.digest(value.__func__, path, strict)
        if isinstance(value, property):
            return self._many("property", (value.fget, value.fset), path, strict)
        if isinstance(value, type):
            return self._class(value, path)
        return self._object(value, path, strict)

    def _code(self, code: types.CodeType, path: str) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _digest("code", code.co_code, repr(names), self._many("consts", code.co_consts, path, False))

    def _function(self, fn: types.FunctionType, path: str, strict: bool) -> str:
        cells = [cell.cell_contents for cell in fn.__closure__ or () if _filled(cell)]
        free = dict(zip(fn.__code__.co_freevars, cells))
        held = (
            self._named("closure", free, path, strict),
            self.digest(fn.__defaults__, path, strict),
            self.digest(fn.__kwdefaults__, path, strict),
        )
        if _is_foreign(fn.__module__):
            return _digest("function", _digest("name", str(fn.__module__), fn.__qualname__), *held)
        reads = {n: fn.__globals__[n] for n in _globals_of(fn.__code__) if n in fn.__globals__}
        return _digest("function", *held, self._code(fn.__code__, path), self._named("globals", reads, path, False))

    def _class(self, cls: type, path: str) -> str:
        name = _digest("class", str(cls.__module__), cls.__qualname__)
        if _is_foreign(cls.__module__):
            return name
        kinds = (types.FunctionType, staticmethod, classmethod, property, int, float, str, np.ndarray, jax.Array)
        own = {k: v for k, v in sorted(vars(cls).items()) if isinstance(v, kinds) and k not in _OF_CLASSES}
        wrapped = {k: inspect.unwrap(v.method) for k, v in sorted(vars(cls).items()) if hasattr(v, "method")}
        bases = self._many("bases", cls.__bases__, path, False)
        return _digest("class", name, bases, self._named("members", own | wrapped, path, False))

    def _object(self, value: Any, path: str, strict: bool) -> str:
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if isinstance(name, str) and _is_foreign(getattr(value, "__module__", None)):
            return _digest("named", str(value.__module__), name)  # builtins, ufuncs, jitted functions of packages
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            return _digest("wrapper", type(value).__qualname__, self.digest(wrapped, path, strict))
        kind = self.digest(type(value), path, False)
        if dataclasses.is_dataclass(value):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
            return _digest("object", kind, self._named("fields", fields, path, strict))
        held = getattr(value, "__dict__", None)
        if held is not None:  # without what was computed from the rest when it was first asked for
            held = {k: v for k, v in held.items() if not _is_cached(type(value), k)}
        if held is None and not callable(value):
            slots = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ()) if hasattr(value, n)]
            held = {n: getattr(value, n) for n in slots} if slots else None
        if held is not None:
            return _digest("object", kind, self._named("held", held, path, strict))
        if " at 0x" not in repr(value):
            return _digest("object", kind, repr(value))
        if strict:
            raise TypeError(
                f"`{self.name}{path}` is a {type(value).__name__}, which cannot be told from another one, so that a "
                "stored run could not be recognised. Hold arrays, numbers, strings, functions or modules there."
            )
        return _digest("object", kind)


_OF_CLASSES = {"__doc__", "__module__", "__qualname__", "__firstlineno__", "__init__", "__eq__", "__repr__", "__hash__"}


def _is_cached(cls: type, name: str) -> bool:
    return any(isinstance(vars(c).get(name), functools.cached_property) for c in cls.__mro__)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _globals_of(code: types.CodeType) -> list[str]:
    """Returns the names that code and the functions within it may read from the module, sorted."""
    names = set(code.co_names)
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            names |= set(_globals_of(x))
    return sorted(names)
