"""An extension of griffe: classes get the signature that Python gives them, and lose members that are not for users.

griffe reads source. An Equinox module has no `__init__` there, its fields are spread over base classes, and their
defaults hide in calls such as `eqx.field(default=10.0, converter=parameter)`. So names and defaults come from
`inspect.signature`, and annotations, which link to the reference, from the source.
"""

import dataclasses
import enum
import importlib
import inspect
from typing import Any

import griffe

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}
BUILT_IN = enum.Enum | Exception | dict
"""Classes that are made as those of Python are."""

ENGINES = {"AbstractStepper", "AbstractAdjoint"}
"""Classes of which users make objects, whose methods only this library calls."""

ASKED_OF_MODELS = {
    *("spectrum", "spectral_radius", "crossing_rate", "decay_rate", "stencil", "to_blocks", "from_blocks"),
    *("in_dtype_of", "check_state", "accelerate", "momentum", "carry", "diffusion_rate", "viscosity_at"),
}
"""Methods by which a model answers a solver."""

INTERNAL = {"scan_kind"}
"""Arguments that base classes of other libraries add."""


class Signatures(griffe.Extension):
    """Is called by griffe with the package, before a page is rendered."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        del kwargs
        self._package = pkg
        self._walk(pkg)

    def _walk(self, module: griffe.Module) -> None:
        for member in list(module.members.values()):
            if member.is_alias:
                continue
            if member.is_module:
                self._walk(member)
            elif member.is_class and not member.name.startswith(("_", "Abstract")):  # from those users derive
                self._complete(member)

    def _complete(self, found: griffe.Class) -> None:
        cls = getattr(importlib.import_module(found.parent.path), found.name)
        if "__init__" not in found.members and not issubclass(cls, BUILT_IN):
            found.set_member("__init__", self._init(found, cls))
        bases = cls.__mro__[1:]
        engine = any(base.__name__ in ENGINES for base in bases)
        model = ".models." in cls.__module__
        for name, member in [*found.members.items()]:
            if name.startswith("_") or not (member.is_function or "property" in member.labels):
                continue  # fields have types, which their descriptions show
            described = any(name in vars(base) for base in bases)  # by the base class
            if engine or described or (model and name in ASKED_OF_MODELS):
                found.del_member(name)

    def _init(self, found: griffe.Class, cls: type) -> griffe.Function:
        parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        for name, parameter in inspect.signature(cls).parameters.items():
            if name in INTERNAL:
                continue
            source = self._source(cls, name)
            parameters.append(
                griffe.Parameter(
                    name,
                    kind=KINDS[parameter.kind],
                    annotation=source.annotation if source else None,
                    default=_default(cls, parameter, source),
                )
            )
        return griffe.Function(
            "__init__",
            lineno=found.lineno,
            endlineno=found.endlineno,
            parent=found,
            parameters=griffe.Parameters(*parameters),
            returns="None",
        )

    def _source(self, cls: type, name: str) -> griffe.Attribute | None:
        """The field of this name, as it is written in the class or in the nearest base class."""
        for owner in cls.__mro__:
            package, _, path = owner.__module__.partition(".")
            if package == self._package.name and name in vars(owner).get("__annotations__", {}):
                return self._package[f"{path}.{owner.__qualname__}.{name}"]
        return None


def _default(cls: type, parameter: inspect.Parameter, source: griffe.Attribute | None) -> Any:
    """The default as it is written, or its value where a helper makes the field."""
    if parameter.default is inspect.Parameter.empty:
        return None
    written = source.value if source else None
    if isinstance(written, griffe.ExprCall):
        if str(written.function).split(".")[-1] == "field":
            given = {part.name: part.value for part in written.arguments if isinstance(part, griffe.ExprKeyword)}
            written = given.get("default", given.get("default_factory"))
            if "default_factory" in given:
                written = written.body if isinstance(written, griffe.ExprLambda) else f"{written}()"
        elif str(written.function).endswith("_field"):
            written = None
    if written is not None:
        return written
    fields = {field.name: field for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    field = fields.get(parameter.name)
    if field is not None and field.default_factory is not dataclasses.MISSING:
        return repr(field.default_factory())
    return repr(parameter.default)
