"""The rules of the house that can be read from the source: layers, abstract or final, what no file may do."""

import ast
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import equinox as eqx
import pytest

import sciml

pytestmark = pytest.mark.always  # a broken rule is found by the change that breaks it

ROOT = pathlib.Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "sciml"
FILES = sorted(SRC.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(), str(path)) for path in FILES}

# What each part of the package may import besides itself. The modules directly under sciml, and its
# package _jax, are "base".
ALLOWED = {"base": set()}
ALLOWED["kernels"] = {"base"}
ALLOWED["stores"] = {"base"}
ALLOWED["spatial"] = {"base", "kernels"}
ALLOWED["solvers"] = {"base", "kernels"}
ALLOWED["adjoints"] = {"solvers"}
ALLOWED["bifurcation"] = ALLOWED["control"] = {"base", "solvers"}
ALLOWED["models"] = {"base", "kernels", "stores", "spatial"}
ALLOWED["runs"] = {"base", "kernels", "stores", "spatial", "solvers"}
for _top in ("parallel", "training", "verify", "inspect", "plot"):
    ALLOWED[_top] = {"base", "kernels", "stores", "spatial", "solvers", "models", "runs"}
ALLOWED["inference"] = ALLOWED["training"] | {"parallel", "training"}
ALLOWED["petab"] = ALLOWED["pharmacology"] = ALLOWED["inference"] | {"inference"}

# `Solution.plot`, `SweepResult.plot` and others find their pictures when they are called.
UPWARD = {("solvers", "plot"), ("parallel", "plot"), ("inference", "plot"), ("petab", "plot")}

# What JAX has renamed or may rename; see _jax/_vma.py.
VERSION_DEPENDENT = {"pcast", "pvary", "vma", "manual_axis_type", "__version__", "__version_info__"}


def module_of(path: pathlib.Path) -> str:
    parts = ("sciml", *path.relative_to(SRC).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The layer that `sciml.x.y` belongs to."""
    parts = module.split(".")
    if len(parts) == 1:
        return "face"
    return "base" if parts[1].startswith("_") else parts[1]


def imports_of(path: pathlib.Path) -> list[tuple[str, int, bool]]:
    """The sciml modules a file imports: name, line, and whether inside a function."""
    here = module_of(path).split(".")
    package = here if path.name == "__init__.py" else here[:-1]
    lazy = {
        id(inner)
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, [base, node.module]))
            # `from sciml import plot` and `from .. import _vma` import modules, `from ._vma import match` a name.
            names = [f"{origin}.{alias.name}" if is_package(origin) else origin for alias in node.names]
        else:
            continue
        found += [(name, node.lineno, id(node) in lazy) for name in names if name.split(".")[0] == "sciml"]
    return found


def is_package(module: str) -> bool:
    return (SRC.parent / module.replace(".", "/")).is_dir()


def names_in(tree: ast.AST):
    """Every name and attribute with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.lineno) for alias in node.names)


def lower_layers_never_import_higher_ones(path):
    part = part_of(module_of(path))
    if part == "face":
        return
    for name, line, lazy in imports_of(path):
        other = part_of(name)
        if other not in {part} | ALLOWED[part] and not (lazy and (part, other) in UPWARD):
            yield f"{line}: imports {name}; {part} may import {sorted(ALLOWED[part])}"


def files_are_short(path):
    lines = len(path.read_text().splitlines())
    if lines > 800:
        yield f"{lines} lines; is this still one idea?"


def modules_are_underscored_and_described(path):
    if not path.name.startswith("_"):
        yield "the name of a module starts with an underscore"
    if not ast.get_docstring(TREES[path]):
        yield "a module says what it is for"


def annotations_are_not_postponed(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield f"{node.lineno}: jaxtyping reads the annotations at run time"


def no_private_jax(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if "jax._src" in line:
            yield f"{number}: {line.strip()}"


def no_host_callback(path):
    forbidden = {"error_if", "branched_error_if", "io_callback", "pure_callback", "debug_callback", "callback"}
    for name, line in names_in(TREES[path]):
        if name in forbidden:
            yield f"{line}: {name}"
    for node in ast.walk(TREES[path]):
        # jax.debug also holds pictures of shardings, which run on the host.
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("jax.debug"):
            if not node.attr.startswith(("visualize", "inspect")):
                yield f"{node.lineno}: jax.debug.{node.attr}"


def no_flag_is_set(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("config.update"):
            yield f"{node.lineno}: {ast.unparse(node.func)}"


def version_differences_stand_in_one_file(path):
    if path in (SRC / "_jax" / "_vma.py", SRC / "__init__.py"):  # the latter has the `__version__` of sciml itself
        return
    for name, line in names_in(TREES[path]):
        if name in VERSION_DEPENDENT:
            yield f"{line}: {name} belongs in _jax/_vma.py"


def the_platform_is_asked_in_one_place(path):
    # a stored run names the machine itself
    if path in (SRC / "_jax" / "_platform.py", SRC / "stores" / "_fingerprint.py"):
        return
    for name, line in names_in(TREES[path]):
        if name == "default_backend":
            yield f"{line}: `default_platform` of _jax/_platform.py respects `jax.default_device`"


# Words of a name that is about a size and does not say of what.
SIZES = {"MOST", "FEW", "FEWEST", "LARGE", "LARGEST", "SMALL", "LONG", "LONGEST", "SHORT", "SHORTEST", "MANY", "LEAST"}
SIZES |= {"SHARE", "WIDEST", "ITERATIONS", "TRIES", "AT", "FROM", "BYTES", "LIMIT", "THRESHOLD", "AT_ONCE"}

# Constants of methods that are compared with something called `size` or `count`.
NO_CHOICES = {
    "solvers/integrate/_fixed_steps.py": {"PAIR"},
    "solvers/linear/_iterative.py": {"_FALLS"},
    "solvers/methods/implicit/_bdf.py": {"HIGHEST_ORDER"},
}


def thresholds_are_in_the_table(path):
    """A number that selects an engine, a loop, a format or a program is an entry of `_choices.py`."""
    relative = path.relative_to(SRC).as_posix()
    if not relative.startswith(("solvers/", "kernels/", "_jax/", "parallel/", "spatial/", "runs/", "_interfaces/")):
        return
    tree, found = TREES[path], {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and is_number(node.value):
            targets = node.targets[0]
            names = targets.elts if isinstance(targets, ast.Tuple) else [targets]
            found |= {name.id: node.lineno for name in names if isinstance(name, ast.Name)}
    for name, line in found.items():
        if not set(name.strip("_").split("_")) - SIZES:
            yield f"{line}: {name} does not say of what it is the size; an engine's threshold belongs in _choices.py"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        numbers = [x.value for x in sides if is_number(x) and isinstance(x, ast.Constant)]
        named = {x.id for side in sides for x in ast.walk(side) if isinstance(x, ast.Name)} & set(found)
        named -= NO_CHOICES.get(relative, set())
        if (named or any(abs(x) >= 16 for x in numbers)) and any(map(is_size, sides)):
            yield f"{node.lineno}: `{ast.unparse(node)}` compares a size: is it an entry of _choices.py?"


def is_number(node: ast.AST) -> bool:
    """Whether an expression is a number, or a tuple of such."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.UnaryOp | ast.BinOp | ast.Tuple):
        inner = [x for x in ast.iter_child_nodes(node) if isinstance(x, ast.expr)]
        return bool(inner) and all(map(is_number, inner))
    return False


def is_size(node: ast.AST) -> bool:
    """Whether an expression is about how large something is, or how much work."""
    named = {x.attr for x in ast.walk(node) if isinstance(x, ast.Attribute)}
    called = {ast.unparse(x.func) for x in ast.walk(node) if isinstance(x, ast.Call)}
    return bool(
        named & {"size", "shape", "count", "nnz", "itemsize"} or called & {"len", "math.prod", "np.size", "work_of"}
    )


def parts_for_interpreters_are_imported_in_one_place(path):
    """`jax.extend`, `jax.interpreters` and `jaxlib` change more than the rest of JAX; `jaxlib._jax` is private."""
    for node in ast.walk(TREES[path]):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            if module.startswith("jaxlib._jax"):
                yield f"{node.lineno}: {module} is private"
            elif module.startswith("jaxlib") and path != SRC / "_jax" / "_executables.py":
                yield f"{node.lineno}: {module}"
            elif module.startswith(("jax.extend", "jax.interpreters")) and path != SRC / "_jax" / "_interpreters.py":
                yield f"{node.lineno}: {module} belongs in _jax/_interpreters.py"


def no_super_init(path):
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Attribute) and node.attr == "__init__" and ast.unparse(node.value).startswith("super("):
            yield f"{node.lineno}: the fields and the constructor of a class stand together"


def face_of(path: pathlib.Path) -> list[ast.stmt]:
    """What a package's `__init__.py` says after its docstring, `if TYPE_CHECKING` opened, without its `__getattr__`."""
    found = []
    for node in TREES[path].body[1:]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found += node.body
        elif "__getattr__ = _former_names.knows_former_names(__name__" not in ast.unparse(node):
            found.append(node)
    return found


def package_inits_only_reexport(path):
    """`from ._x import X as X` and nothing else; ruff sorts. Only sciml's own has more, to import late."""
    if path.name != "__init__.py":
        return
    for node in face_of(path):
        if not isinstance(node, ast.ImportFrom):
            if path.parent != SRC:
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif node.module == "typing":
            continue
        elif wrong := [alias.name for alias in node.names if alias.asname != alias.name]:
            yield f"{node.lineno}: write `{wrong[0]} as {wrong[0]}`"


RULES = [
    lower_layers_never_import_higher_ones,
    files_are_short,
    modules_are_underscored_and_described,
    annotations_are_not_postponed,
    no_private_jax,
    no_host_callback,
    no_flag_is_set,
    version_differences_stand_in_one_file,
    the_platform_is_asked_in_one_place,
    thresholds_are_in_the_table,
    parts_for_interpreters_are_imported_in_one_place,
    no_super_init,
    package_inits_only_reexport,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule):
    wrong = [f"{path.relative_to(SRC)}:{problem}" for path in FILES for problem in rule(path)]
    assert not wrong, "\n".join(wrong)


def imports_between_modules() -> dict[str, set[str]]:
    """Which module imports which, inside of functions and for annotations too; a name of a face counts where it is."""
    origins = {}
    for path in FILES:
        if path.name == "__init__.py":
            package = module_of(path)
            for node in face_of(path):
                if isinstance(node, ast.ImportFrom) and node.level and node.module:
                    origins |= {f"{package}.{x.name}": f"{package}.{node.module}" for x in node.names}
    found = {module_of(path): set() for path in FILES}
    for path in FILES:
        if path.name != "__init__.py":
            for name, _, _ in imports_of(path):
                while name not in found and name in origins:
                    name = origins[name] if origins[name] in found else f"{origins[name]}.{name.rpartition('.')[2]}"
                found[module_of(path)].add(name)
    return found


def circles(imports: dict[str, set[str]]) -> list[str]:
    """The modules that import themselves, by way of others."""

    def reached(module: str) -> set[str]:
        seen, todo = set(), [module]
        while todo:
            new = imports.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen

    return sorted(module for module in imports if module in reached(module))


def test_no_module_imports_itself_by_way_of_others():
    imports = imports_between_modules()
    assert "sciml.solvers._plan" in imports["sciml.solvers._solve"]
    assert "sciml.inference._log_density" in imports["sciml.petab._problem"], "by the face of sciml.inference"
    assert not circles(imports)
    assert circles(imports | {"sciml.solvers._plan": {"sciml.solvers._solve"}}), "the rule can fail"


def test_every_part_has_a_layer():
    parts = {part_of(module_of(path)) for path in FILES}
    assert parts <= {"face", *ALLOWED}, "a new folder needs a line in ALLOWED and in docs/design.md"


def test_the_map_in_the_documentation_is_of_these_imports():
    from tests.architecture_map import LISTED, WRITTEN, drawing, edges, with_folders

    assert ("verify", "solvers") in edges() and not any(a == "stores" for a, _ in edges())
    assert WRITTEN.read_text() == drawing(), "run `python -m tests.architecture_map`"
    assert LISTED.read_text() == with_folders(LISTED.read_text()), "run `python -m tests.architecture_map`"


@pytest.mark.parametrize(
    "rule, source",
    [
        (no_host_callback, "import jax\njax.debug.print('x')"),
        (no_host_callback, "from equinox import error_if"),
        (no_private_jax, "import jax._src"),
        (no_flag_is_set, "import jax\njax.config.update('jax_enable_x64', True)"),
        (version_differences_stand_in_one_file, "import jax\njax.lax.pcast(1, 'x', to='varying')"),
        (the_platform_is_asked_in_one_place, "import jax\njax.default_backend()"),
        (thresholds_are_in_the_table, "_MOST = 8"),
        (thresholds_are_in_the_table, "_FEWEST, _OTHER = 8, 2"),
        (thresholds_are_in_the_table, "_WHOLE_NUMBERS = 2**10\nx.size > 3 * _WHOLE_NUMBERS"),
        (thresholds_are_in_the_table, "def f(x):\n    return len(x) <= 100"),
        (parts_for_interpreters_are_imported_in_one_place, "import jax.extend as jex"),
        (parts_for_interpreters_are_imported_in_one_place, "from jaxlib import _jax"),
        (no_super_init, "class A:\n    def __init__(self):\n        super().__init__()"),
        (annotations_are_not_postponed, "from __future__ import annotations"),
        (lower_layers_never_import_higher_ones, "from ..solvers import solve"),
        (lower_layers_never_import_higher_ones, "from .. import training"),
        (lower_layers_never_import_higher_ones, "def f():\n    import sciml.plot"),
    ],
)
def test_the_rules_can_fail(rule, source, monkeypatch):
    path = SRC / ("models" if rule is lower_layers_never_import_higher_ones else "solvers") / "_example.py"
    monkeypatch.setitem(TREES, path, ast.parse(source))
    monkeypatch.setattr(pathlib.Path, "read_text", lambda self: source)
    assert list(rule(path))


def modules() -> list:
    return [importlib.import_module(module_of(path)) for path in FILES]


def classes() -> list[type]:
    """Every class that sciml defines."""
    found = {}
    for module in modules():
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return list(found.values())


def is_abstract(cls: type) -> bool:
    return bool(
        inspect.isabstract(cls) or getattr(cls, "__abstractvars__", None) or getattr(cls, "__abstractclassvars__", None)
    )


def test_classes_are_abstract_or_final():
    wrong = []
    for cls in classes():
        named = cls.__name__.lstrip("_").startswith("Abstract")
        if is_abstract(cls) and not named:
            wrong.append(f"{cls.__qualname__} has abstract members: its name must start with Abstract")
        for base in cls.__bases__:
            if issubclass(cls, Exception):  # who catches the general one catches the special one
                continue
            if base.__module__.split(".")[0] == "sciml" and not base.__name__.lstrip("_").startswith("Abstract"):
                wrong.append(f"{cls.__qualname__} derives from {base.__qualname__}, which is not abstract")
        if named and issubclass(cls, eqx.Module) and not is_abstract(cls):
            wrong.append(f"{cls.__qualname__} can be instantiated: it is not abstract")
    assert not wrong, "\n".join(wrong)


def test_two_classes_never_share_a_name():
    """One name, one thing; what starts with an underscore is known in its own file alone."""
    places = {}
    for cls in classes():
        if not cls.__name__.startswith("_"):
            places.setdefault(cls.__name__, []).append(cls.__module__)
    wrong = [f"{name}: {', '.join(modules)}" for name, modules in places.items() if len(modules) > 1]
    assert not wrong, "\n".join(wrong)


def public_names() -> dict[str, object]:
    """Every public name, by its path: `sciml.solve`, `sciml.models.Lorenz63` and so on."""
    found = {}
    for path in FILES:
        package = module_of(path)
        if path.name != "__init__.py" or "._" in package:
            continue
        module = importlib.import_module(package)
        for node in face_of(path):
            if isinstance(node, ast.ImportFrom) and node.module != "typing":
                for alias in node.names:
                    if not alias.name.startswith("_"):
                        found[f"{package}.{alias.name}"] = getattr(module, alias.name)
    return found


def results() -> str:
    """What public functions return and public classes hold, as text: the types that the others' examples show."""
    found = []
    for value in public_names().values():
        if inspect.isclass(value):
            found += vars(value).get("__annotations__", {}).values()
        elif inspect.isroutine(value):
            found.append(inspect.signature(value).return_annotation)
    return " ".join(getattr(kind, "__name__", "") + " " + str(kind) for kind in found)


def test_public_names_are_documented():
    wrong = []
    shown = results()
    for name, value in public_names().items():
        if inspect.ismodule(value):
            continue
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue  # a type alias or a constant has no docstring of its own
        # A dataclass without a docstring inherits one from the decorator that begins with its own name.
        text = inspect.getdoc(value) if "__doc__" not in vars(value) or value.__doc__ else None
        if not text or text.startswith(f"{value.__name__}("):
            wrong.append(f"{name}: no docstring")
        elif inspect.isclass(value) and (issubclass(value, Exception) or re.search(rf"\b{value.__name__}\b", shown)):
            continue
        elif "```python" not in text:
            wrong.append(f"{name}: no example")
    assert not wrong, "\n".join(wrong)


def run(code: str) -> str:
    """Runs a program of its own, without the tests' type checks and flags."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": str(SRC.parent), "JAX_PLATFORMS": "cpu", "HOME": str(ROOT)},
    ).stdout.strip()


def test_import_touches_no_device_and_sets_no_flag():
    code = """
import os, sys, warnings
import jax, equinox, diffrax, lineax, optimistix, optax
before = dict(jax.config.values), dict(os.environ), list(warnings.filters)
import sciml
for name in dir(sciml):  # packages that are imported late, too
    getattr(sciml, name)
after = dict(jax.config.values), dict(os.environ), list(warnings.filters)
assert before == after
assert "matplotlib" not in sys.modules
# Refused by JAX once a device has been touched.
jax.config.update("jax_num_cpu_devices", 3)
assert len(jax.devices()) == 3
print("fine")
"""
    assert run(code) == "fine"


@pytest.mark.x64  # nothing of it depends on the dtype
def test_import_is_cheap():
    """At most 60 of its modules and 0.1 s of the processor over `import diffrax`; `solve` comes when first used."""
    code = """
import sys, time
import diffrax
start = time.process_time()
import sciml
print(time.process_time() - start, sum(name.partition(".")[0] == "sciml" for name in sys.modules))
"""
    seconds, modules = zip(*(map(float, run(code).split()) for _ in range(3)))
    assert max(modules) <= 60
    assert min(seconds) <= 0.1  # the machine may be busy


@pytest.mark.x64
def test_dir_lists_the_public_names():
    """`dir` lists the public names, whether they have been imported or not, and nothing else."""
    public = {name.partition(".")[2] for name in public_names() if name.count(".") == 1}
    assert set(dir(sciml)) == public | {"__version__"}
    with pytest.raises(AttributeError, match="'sciml' has no attribute 'modles'"):
        sciml.modles
    with pytest.raises(AttributeError, match="use `diffrax.SaveAt`"):
        sciml.SaveAt
    assert importlib.import_module("sciml.adjoints") is sciml.adjoints


def test_the_text_stands_on_its_own():
    """No path of somebody's machine, no ticket number: a reader has only this repository."""
    pattern = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/|\bissue #?\d|\bprototypes?\b", re.IGNORECASE)
    suffixes = {".py", ".md", ".toml", ".yml", ".yaml", ".cfg", ".js", ".css", ".csv", ""}
    hidden = {".git", ".cache", ".hypothesis", ".pytest_cache", ".ruff_cache", "site", "__pycache__"}
    wrong = []
    for path in ROOT.rglob("*"):
        relative = path.relative_to(ROOT)
        if any(part in hidden or part.startswith(".venv") for part in relative.parts) or not path.is_file():
            continue
        if path == pathlib.Path(__file__) or path.suffix not in suffixes:
            continue
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1):
            if pattern.search(line):
                wrong.append(f"{relative}:{number}: {line.strip()[:80]}")
    assert not wrong, "\n".join(wrong)
