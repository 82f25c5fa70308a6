"""Tutorials run as a user runs them: scripts in a process of their own, without the tests' configuration."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_ten_thousand_members(tmp_path):
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    script = ROOT / "docs" / "tutorials" / "ten_thousand_members.py"
    command = [sys.executable, str(script), "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  10000 members .* us a member$", done.stdout, re.MULTILINE)
    lockstep, refill = map(float, re.findall(r"lane efficiency ([\d.]+), 0 failed", done.stdout))
    assert refill > 2 * lockstep
    assert (tmp_path / "ten_thousand_members.png").read_bytes().startswith(b"\x89PNG")
