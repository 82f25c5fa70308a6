"""Installs a wheel in a fresh environment outside the tree and runs the README's first example there: `make dist`."""

import pathlib
import re
import subprocess
import sys
import tempfile
import venv

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def example() -> str:
    """The first block of Python of the README."""
    return re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]


def try_wheel(wheel: pathlib.Path) -> None:
    """Runs the example with nothing installed but the wheel and what it asks for."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", wheel.resolve()], check=True)
        where = "import sciml, sys\nassert sciml.__file__.startswith(sys.prefix), sciml.__file__\n"
        subprocess.run([python, "-I", "-c", where + example()], check=True, cwd=folder)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try_wheel(pathlib.Path(name))
        print(f"{name} installs, and the README's first example runs")
