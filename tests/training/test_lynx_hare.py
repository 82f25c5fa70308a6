"""The tutorial, run as a user runs it: a script in a process of its own, without the tests' configuration."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "tutorials" / "lynx_hare.py"
PUBLISHED = {"alpha": 0.545, "beta": 0.028, "gamma": 0.803, "delta": 0.024, "u0": 33.96, "v0": 5.93}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the script printed, and where its figures are."""
    out = tmp_path_factory.mktemp("figures")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax-demo")}
    environment |= {"OUT": str(out), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, out


def test_estimates_beside_the_published_means(run):
    text, _ = run
    rows = re.findall(r"^(\w+) +([\d.]+) +([\d.]+) \( *[-+][\d.]+%\) +([\d.]+) \( *[-+][\d.]+%\)$", text, re.MULTILINE)
    table = {name: tuple(map(float, numbers)) for name, *numbers in rows}
    assert {name: published for name, (published, _, _) in table.items()} == PUBLISHED
    for name, (published, squares, adam) in table.items():
        assert abs(squares / adam - 1) < 0.01
        if name not in ("u0", "v0"):
            assert abs(squares / published - 1) < 0.05
            assert abs(adam / published - 1) < 0.05


def test_ensemble_and_sweep_run_whole(run):
    text, out = run
    assert text.count("10,000 members") == 2 and "\n0 failed\n" in text
    assert re.search(r"40000 members in [\d.]+ s: 40000 successful\n", text)
    # The sweep's lowest point is the grid point next to the estimate: 200 values from 0.6 to 1.5 times it.
    found = re.search(r"lowest at beta = ([\d.]+), delta = ([\d.]+)", text)
    estimates = [re.search(rf"^rates.{name} +([\d.]+)", text, re.MULTILINE) for name in ("beta", "delta")]
    for lowest, estimate in zip(map(float, found.groups()), (float(m[1]) for m in estimates), strict=True):
        assert abs(lowest / estimate - 1) < 0.9 / 199
    for name in ("lynx_hare_fit.png", "lynx_hare_misfit.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG") and (out / name).stat().st_size > 20_000
