"""How far a reader goes who follows the state from `solve` to a step; see docs/design.md."""

import pathlib
import sys

import jax.numpy as jnp
import pytest

import sciml

ROOT = pathlib.Path(sciml.__file__).parent


def walk(**steps) -> tuple[list[str], list[str]]:
    """The files of the calls that are given `y0` or `y` before the first step; and those between `solve` and it."""
    given, stack, path = [], [], []

    def note(frame, event, arg):
        code = frame.f_code
        if path or not code.co_filename.startswith(str(ROOT)) or code.co_name == "<module>":
            return
        if event == "return":
            stack.pop()
        elif event == "call":
            stack.append(str(pathlib.Path(code.co_filename).relative_to(ROOT)))
            if {"y0", "y"} & set(code.co_varnames[: code.co_argcount]):
                given.append(stack[-1])
            if stack[-1].endswith("_runge_kutta.py") and code.co_name == "step":
                path.extend(stack)

    model, y0 = sciml.models.LotkaVolterra(), jnp.array([34.0, 5.9])
    sciml.solve, sciml.models  # what is imported late
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        sciml.solve(model, y0, t0=0.0, t1=20.0, **steps)
    finally:
        sys.setprofile(before)
    return given, path


@pytest.mark.parametrize("steps", [{"dt": 0.123}, {"rtol": 1.23e-4}], ids=["fixed", "adaptive"])
def test_a_reader_finds_the_step(steps):
    given, path = walk(**steps)
    assert len(set(path)) <= 20, sorted(set(path))
    assert len(set(given)) <= 25, sorted(set(given))
