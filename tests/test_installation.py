"""The name under which sciml is installed, and the warning about the other project of the name `sciml`."""

import importlib.metadata
import subprocess
import sys
import tomllib

import pytest

import sciml
from sciml._installation import DISTRIBUTION, warn_of_versions
from tests.conftest import ROOT

pytestmark = pytest.mark.x64  # nothing of it depends on the dtype


def warnings_of_import(*folders) -> list[str]:
    """What `import sciml` warns of in a process of its own, with `folders` on its path."""
    path = [str(ROOT / "src"), *map(str, folders)]
    code = """
import warnings
import diffrax
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import sciml
for warning in caught:
    print(warning.filename, warning.message)
"""
    run = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path[:0] = {path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "JAX_PLATFORMS": "cpu", "HOME": str(ROOT)},
    )
    return [line for line in run.stdout.splitlines() if "sciml" in line]


def installed(folder, name: str, version: str, *files: str):
    """Writes to `folder` what pip writes of a distribution, with files of no content."""
    for file in files:  # from Python 3.12 on a record's files count only where they are there
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{info.name}/RECORD")))
    return folder


def test_a_namesake_is_warned_of_once(tmp_path):
    namesake = installed(tmp_path, "sciml", "0.0.12", "sciml/__init__.py", "sciml/utils.py")
    (warning,) = warnings_of_import(namesake)
    assert warning.startswith("<string> The distribution `sciml` 0.0.12 is also installed")
    assert f"pip uninstall sciml {DISTRIBUTION}" in warning


@pytest.mark.parametrize(
    "name, file",
    [
        pytest.param(DISTRIBUTION, "sciml/__init__.py", id="itself"),
        pytest.param("sciml", "_editable_impl_sciml.pth", id="an editable install under its former name"),
        pytest.param("petab-sciml", "petab_sciml/__init__.py", id="a longer name"),
    ],
)
def test_what_leaves_its_files_alone_is_not_warned_of(tmp_path, name, file):
    assert not warnings_of_import(installed(tmp_path, name, "0.1.0", file))


def test_the_distribution_has_the_name_that_is_looked_up():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION


def test_the_version_is_that_of_the_distribution(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", {DISTRIBUTION: "1.2.3"}.__getitem__)
    assert sciml.__version__ == "1.2.3"


def test_a_source_tree_that_is_not_installed_has_no_version(monkeypatch):
    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert sciml.__version__ == "0+unknown"


def test_a_version_with_a_known_fault_is_warned_of(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", {"jaxlib": "0.11.1"}.__getitem__)
    with pytest.warns(UserWarning, match=r"jaxlib 0.11.1: on CPUs.* install another version"):
        warn_of_versions()
    monkeypatch.setattr(importlib.metadata, "version", {"jaxlib": "0.11.2"}.__getitem__)
    warn_of_versions()
