"""Programs drawn at random agree with a plain loop: a few always, some minutes of them in `make test-all`."""

import contextlib
import os
import random
import time
from collections.abc import Callable
from typing import Any

import jax
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from .combinations import check as check_features, combinations
from .programs import Program, check, programs

MINUTES = float(os.environ.get("FUZZ_MINUTES", "0"))
SEED = int(os.environ.get("FUZZ_SEED", random.randrange(10**9)))
LONG = 60.0
"""Programs that take so many seconds are printed."""
SLOW = float(os.environ.get("FUZZ_SLOW_MINUTES", "2"))

FIXED = (
    Program(("polyval", "where"), "dict", "Tsit5", "checkpointed", "scan", (), "grad", ("vmap",), "float32"),
    Program(("log2", "scan"), "tuple", "Heun", "forward", "fixed", (), "jvp", (), "float32"),
    Program(("cond", "shifted"), "nested", "Bosh3", "checkpointed", "fixed_saves", (), "none", ("vmap",), "float32"),
    Program(("cumsum",), "vector", "Tsit5", "checkpointed", "adaptive", (), "grad", ("vmap",), "float32"),
)


@pytest.mark.parametrize("program", FIXED, ids=lambda program: "-".join(program.operations))
def test_a_few_programs(program):
    check(program)


class TimeIsOver(KeyboardInterrupt):
    """Ends a search at once; Hypothesis would take any other exception for a failure."""


def search(minutes: float, number: int, drawn: Any, check: Callable[[Any], None], script: str) -> None:
    """Draws programs until the time is over; a failure is shrunk and printed as a script."""
    print(f"\nseed {number}")
    end = time.monotonic() + 60 * minutes
    tried, failed = 0, False

    @seed(number)
    @settings(
        max_examples=10**6,
        deadline=None,
        database=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def every_program_agrees(program):
        nonlocal tried, failed
        if time.monotonic() > end and not failed:  # what failed is shrunk first
            raise TimeIsOver
        tried += 1
        began = time.monotonic()
        try:
            check(program)
        except Exception:
            failed = True
            print(f"# seed {number}, program {tried}\n{script.format(program)}")
            raise
        finally:
            if time.monotonic() - began > LONG:
                print(f"program {tried} took {time.monotonic() - began:.0f} s: {program}")
            if tried % 20 == 0:
                jax.clear_caches()

    with contextlib.suppress(TimeIsOver):
        every_program_agrees()
    print(f"{tried} programs agree")


@pytest.mark.skipif(not SLOW and not MINUTES, reason="FUZZ_SLOW_MINUTES=0")
def test_programs_drawn_at_random():
    script = "from tests.random.programs import Program, check\ncheck({})"
    search((MINUTES or SLOW) / 2, SEED, programs(), check, script)


@pytest.mark.x64
@pytest.mark.skipif(not SLOW and not MINUTES, reason="FUZZ_SLOW_MINUTES=0")
def test_features_drawn_at_random():
    script = "from tests.random.combinations import check\ncheck(*{})"
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        search((MINUTES or SLOW) / 2, SEED, combinations(), lambda drawn: check_features(*drawn), script)
