"""Programs in flight on several CPU devices, each in a process of its own, which is ended where it hangs."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "parallel" / "never_hangs.py"

pytestmark = pytest.mark.x64


def ended(devices, *arguments, seconds):
    """What a run in a process of its own prints; fails where it takes longer."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_ENABLE_X64": "1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_two_devices_that_factorise_at_once():
    assert "done" in ended(2, 30, 128, 64, seconds=120)


@pytest.mark.parametrize("unknowns", [10, 30, 100])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_sweeps_end(devices, unknowns):
    assert "done" in ended(devices, unknowns, 32 * devices, 16, seconds=400)


def test_a_sweep_of_500_members_ends():
    assert "done" in ended(4, 30, 500, 0, seconds=400)


@pytest.mark.parametrize("block", [0, 16])
def test_ensembles_end(block):
    assert "done" in ended(2, 30, 128, block, "ensemble", seconds=400)
