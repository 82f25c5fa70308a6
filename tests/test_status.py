"""Status codes and the one error that the host raises for them."""

import re

import numpy as np
import pytest

import sciml
from sciml import SolveError, Status
from sciml._status import raise_for_status


def test_zero_is_success_and_codes_are_distinct():
    assert Status.successful == 0
    assert len({int(s) for s in Status}) == len(Status)


@pytest.mark.parametrize("status", Status, ids=lambda s: s.name)
def test_every_code_has_a_message(status):
    assert status.message.endswith(".")
    if status is not Status.successful:
        assert status.message.count(".") >= 2, "cause and remedy"
    sentences = re.findall(r"\.(?= |$)", status.message)
    assert len(sentences) <= 3 and len(status.message) < 500


def test_the_likeliest_cause_comes_first():
    assert "is stiff" in Status.max_steps_reached.message[:120]
    assert Status.nonfinite.message.index("`dt`") < Status.nonfinite.message.index("`y0`")


@pytest.mark.parametrize(
    "codes", [0, np.int32(0), np.zeros(3, np.int32), np.zeros((2, 2), np.int32), np.zeros(0, np.int32)]
)
def test_success_is_quiet(codes):
    assert raise_for_status(codes) is None


def test_an_event_is_no_failure():
    assert raise_for_status(np.array([0, Status.event])) is None


@pytest.mark.parametrize("status", [s for s in Status if s not in (0, Status.event)], ids=lambda s: s.name)
def test_one_failure_names_place_code_and_remedy(status):
    with pytest.raises(SolveError) as caught:
        raise_for_status(int(status), where="simulate")
    text = str(caught.value)
    assert text == f"`simulate` failed with status `{status.name}`. {status.message}"
    assert caught.value.status == status


def test_batches_are_counted_by_cause():
    codes = np.array([[0, 2, 1], [2, 0, 0]], np.int32)
    with pytest.raises(SolveError) as caught:
        raise_for_status(codes)
    first, *rest = str(caught.value).splitlines()
    assert first == "`solve`: 3 of 6 members failed."
    assert rest[0].startswith("  1 with status `max_steps_reached` (members 2). ")
    assert rest[1].startswith("  2 with status `nonfinite` (members 1, 3). ")
    np.testing.assert_array_equal(caught.value.status, codes)


def test_long_lists_of_members_are_cut():
    with pytest.raises(
        SolveError, match=r"25 of 25 members failed[^(]*\(members 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.\)"
    ):
        raise_for_status(np.full(25, int(Status.nonfinite)))


def test_the_error_is_a_runtime_error():
    assert issubclass(SolveError, RuntimeError) and sciml.SolveError is SolveError
