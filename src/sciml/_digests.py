"""Digests of values: arrays by their bytes, functions by their code, objects by their contents."""

import collections
import dataclasses
import enum
import functools
import hashlib
import inspect
import math
import os
import pathlib
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh

FOREIGN = tuple(
    path + os.sep
    for path in {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {path for path in (*site.getsitepackages(), site.getusersitepackages())}
    | {str(pathlib.Path(__file__).parent)}
)
"""Code whose version identifies it: the standard library, installed packages and sciml."""


def digest_of(kind: str, *parts: str | bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in (kind, *parts):
        part = part.encode() if isinstance(part, str) else part
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_foreign(module: str | None) -> bool:
    """Whether a module is part of Python, an installed package or sciml."""
    if module in (None, "__main__", "__mp_main__"):
        return False
    found = sys.modules.get(str(module))
    file = getattr(found, "__file__", None)
    if file is None:
        return module in sys.builtin_module_names
    return str(file).startswith(FOREIGN)


def digest_of_array(x: np.ndarray | np.generic | jax.Array) -> str:
    """Returns the digest of the numbers of an array."""
    x = np.asarray(x)
    return digest_of("array", str(x.dtype), str(x.shape), np.ascontiguousarray(x).tobytes())


class Hasher:
    """Digests of the values within one part. `path` is the position in it, for errors.

    Attributes:
        name: The name of the value in errors.
        of_array: The digest of an array of numbers; by default of its content.
        certain: Whether equal digests have to mean the same program: functions that may read what their code does not
            name, and objects whose contents are unknown, raise a `TypeError`; orders of mappings and sets count, and
            modules of the user by identity.
    """

    def __init__(self, name: str, of_array: Callable[[Any], str] = digest_of_array, certain: bool = False):
        self.name = name
        self.of_array = of_array
        self.certain = certain
        self.open: dict[int, int] = {}  # what is being digested further out, against circles
        self.code: dict[Any, str] = {}  # functions and classes that have been digested

    def digest(self, value: Any, path: str = "", strict: bool = True) -> str:
        if id(value) in self.open:
            return digest_of("again", str(self.open[id(value)]))
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
            raise TypeError(
                f"`{self.name}` is traced by JAX, but a stored run needs its values. Call it outside of `jit`."
            )
        if is_key(value):
            return digest_of("key", str(jax.random.key_impl(value)), self.of_array(jax.random.key_data(value)))
        if isinstance(value, (np.ndarray, np.generic, jax.Array)) and value.dtype != object:
            return self.of_array(value)
        if isinstance(value, enum.Enum):
            held = [self.digest(value.value)] if self.certain else []
            return digest_of("enum", type(value).__qualname__, value.name, *held)
        if self.certain and isinstance(value, (int, float, complex, str, bytes)) and type(value) not in _SCALARS:
            raise TypeError(f"`{self.name}` reads a {type(value).__name__}, which may hold more than its value.")
        if isinstance(value, float) and math.isfinite(value):
            return digest_of("float", value.hex())
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes, np.dtype)):
            return digest_of(type(value).__name__, value if isinstance(value, bytes) else repr(value))
        if isinstance(value, types.ModuleType):
            if self.certain and not _is_foreign(value.__name__):
                raise TypeError(f"`{self.name}` may read any value of the module {value.__name__}.")
            return digest_of("module", value.__name__)
        if isinstance(value, Mesh | AbstractMesh):  # on which devices it runs, and on how many, is no part of a run
            return digest_of("mesh", *map(str, value.axis_names))
        return None

    def _many(self, kind: str, values: Any, path: str, strict: bool) -> str:
        return digest_of(kind, *(self.digest(x, f"{path}[{i}]", strict) for i, x in enumerate(values)))

    def _named(self, kind: str, values: Mapping[str, Any], path: str, strict: bool) -> str:
        parts = []
        for name, x in values.items():
            parts += [str(name), self.digest(x, f"{path}.{name}", strict)]
        return digest_of(kind, *parts)

    def _compound(self, value: Any, path: str, strict: bool) -> str:
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return self._collection(value, path, strict)
        if isinstance(value, types.CodeType):
            return self._code(value, path)
        if isinstance(value, types.FunctionType):
            return self._function(value, path, strict)
        if isinstance(value, types.MethodType):
            return digest_of(
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

    def _collection(self, value: Any, path: str, strict: bool) -> str:
        in_order = list if self.certain else sorted  # a program may unpack them in their order
        kind = []
        if self.certain and type(value) not in _COLLECTIONS:  # which may hold more, and have methods of its own
            kind = [self.digest(type(value), path, False), self._named("held", _attributes(value), path, strict)]
        if isinstance(value, Mapping):
            pairs = in_order(
                (self.digest(k, path, strict), self.digest(v, f"{path}[{k!r}]", strict)) for k, v in value.items()
            )
            return digest_of("mapping", *kind, *(x for pair in pairs for x in pair))
        if isinstance(value, (set, frozenset)):
            return digest_of("set", *kind, *in_order(self.digest(x, path, strict) for x in value))
        return digest_of("sequence", *kind, self._many(type(value).__name__, value, path, strict))

    def _code(self, code: types.CodeType, path: str) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return digest_of("code", code.co_code, repr(names), self._many("consts", code.co_consts, path, False))

    def _function(self, fn: types.FunctionType, path: str, strict: bool) -> str:
        cells = [cell.cell_contents for cell in fn.__closure__ or () if _filled(cell)]
        free = dict(zip(fn.__code__.co_freevars, cells))
        names = _globals_of(fn.__code__)
        parts = (
            self._read("closure", free, names, path, strict),
            self.digest(fn.__defaults__, path, strict),
            self.digest(fn.__kwdefaults__, path, strict),
        )
        if _is_foreign(fn.__module__):
            return digest_of("function", digest_of("name", str(fn.__module__), fn.__qualname__), *parts)
        globals_read = {n: fn.__globals__[n] for n in names if n in fn.__globals__}
        if self.certain and (hidden := _hides(names, [*globals_read.values(), *cells])):
            raise TypeError(f"`{self.name}{path}` may read any value through {hidden}.")
        if held := {k: v for k, v in vars(fn).items() if not k.startswith("__")}:
            parts += (self._named("attributes", held, path, strict),)
        reads = self._read("globals", globals_read, names, path, False)
        return digest_of("function", *parts, self._code(fn.__code__, path), reads)

    def _read(
        self, kind: str, found: Mapping[str, Any], names: list[str], path: str, strict: bool, within: tuple = ()
    ) -> str:
        """Returns a digest of what code reads by name; of a module of the user that is the members that it names."""
        parts = []
        for name, x in found.items():
            if isinstance(x, types.ModuleType) and x not in within and not _is_foreign(x.__name__):
                members = {n: getattr(x, n) for n in names if hasattr(x, n)}
                parts += [str(id(x))] if self.certain else []
                parts += [name, self._read("module", members, names, f"{path}.{name}", False, (*within, x))]
            else:
                parts += [name, self.digest(x, f"{path}.{name}", strict)]
        return digest_of(kind, *parts)

    def _class(self, cls: type, path: str) -> str:
        name = digest_of("class", str(cls.__module__), cls.__qualname__)
        if _is_foreign(cls.__module__):
            return name
        kinds = (types.FunctionType, staticmethod, classmethod, property, int, float, str, np.ndarray, jax.Array)
        members = {k: v for k, v in sorted(vars(cls).items()) if k not in _OF_CLASSES}
        own = {k: v for k, v in members.items() if isinstance(v, kinds) or (self.certain and not k.startswith("__"))}
        if self.certain and isinstance(init := vars(cls).get("__init__"), types.FunctionType):
            if init.__code__.co_filename != "<string>":  # which a dataclass writes from its fields
                own["__init__"] = init
        if self.certain and not _is_foreign(type(cls).__module__):
            own["metaclass"] = type(cls)
        wrapped = {k: inspect.unwrap(v.method) for k, v in sorted(vars(cls).items()) if hasattr(v, "method")}
        bases = self._many("bases", cls.__bases__, path, False)
        return digest_of("class", name, bases, self._named("members", own | wrapped, path, False))

    def _object(self, value: Any, path: str, strict: bool) -> str:
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if isinstance(name, str) and _is_foreign(getattr(value, "__module__", None)):
            return digest_of("named", str(value.__module__), name)  # builtins, ufuncs, jitted functions of packages
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None:
            # such as rules of derivatives, which change no value that is stored
            held = {k: v for k, v in vars(value).items() if not k.startswith("__")} if self.certain else {}
            parts = [self._named("held", held, path, strict)] if held else []
            return digest_of("wrapper", type(value).__qualname__, self.digest(wrapped, path, strict), *parts)
        kind = self.digest(type(value), path, False)
        if dataclasses.is_dataclass(value):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
            return digest_of("object", kind, self._named("fields", fields, path, strict))
        parts = getattr(value, "__dict__", None)
        if parts is not None:  # without what was computed from the rest when it was first asked for
            parts = {k: v for k, v in parts.items() if not _is_cached(type(value), k)}
        if parts is None and not callable(value):
            slots = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ()) if hasattr(value, n)]
            parts = {n: getattr(value, n) for n in slots} if slots else None
        if parts is not None:
            return digest_of("object", kind, self._named("held", parts, path, strict))
        if " at 0x" not in repr(value):
            return digest_of("object", kind, repr(value))
        if strict or self.certain:
            raise TypeError(
                f"`{self.name}{path}` is a {type(value).__name__}, whose contents cannot be compared, so a stored run "
                "could not be recognised. Use arrays, numbers, strings, functions or modules there."
            )
        return digest_of("object", kind)


_OF_CLASSES = {
    "_abc_impl",
    "__doc__",
    "__module__",
    "__qualname__",
    "__firstlineno__",
    "__init__",
    "__eq__",
    "__repr__",
    "__hash__",
}


_SCALARS = (bool, int, float, complex, str, bytes)

_COLLECTIONS = (dict, list, tuple, set, frozenset, types.MappingProxyType)

_BY_ANY_NAME = {"__import__", "importlib", "getattr", "globals", "locals", "vars", "eval", "exec", "__dict__", "sys"}

_FROM_OUTSIDE = {"open", "input", "next", "environ", "getenv", "read_text", "read_bytes"}
_FROM_OUTSIDE |= {"load", "loadtxt", "genfromtxt", "fromfile", "memmap", "read_csv"}
"""Names by which code reads files, the environment or the next value of an iterator, which change without its code."""

_WRITING = {"append", "extend", "insert", "update", "setdefault", "pop", "clear", "remove", "discard"}
"""Methods by which code changes a list, a dictionary or a set, such as a list of what was traced."""

_CHANGING = {"os", "time", "random", "datetime", "secrets", "uuid", "numpy.random"}
"""Modules whose functions return other values in each call."""


def _hides(names: list[str], read: list[Any]) -> str:
    """Returns a name by which code reaches what it does not name, or a module of the user that it imports itself.

    Args:
        names: The names in the code.
        read: The values that it reads from its module or closes over.
    """
    own = [n for n in names if n in sys.modules and not _is_foreign(n)]
    modules = [x.__name__ for x in read if isinstance(x, types.ModuleType)]
    if any(isinstance(x, (list, dict, set)) for x in read):  # to which the code may write
        own += sorted(_WRITING.intersection(names))
    changing = [n for n in modules if n in _CHANGING or (n == "numpy" and "random" in names)]
    return next(iter([*sorted((_BY_ANY_NAME | _FROM_OUTSIDE).intersection(names)), *own, *changing]), "")


def _attributes(value: Any) -> dict[str, Any]:
    """Returns the attributes of a list, a mapping or a set, which it has in addition to its items."""
    return getattr(value, "__dict__", {}) | (
        {"default_factory": value.default_factory} if isinstance(value, collections.defaultdict) else {}
    )


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
