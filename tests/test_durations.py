"""Which tests `make test` and `make test-all` leave out."""

import pytest

from tests.conftest import DURATIONS, LONG, RARE, ROOT, SLOW, exists, rare_cases, slow_cases

pytestmark = pytest.mark.x64  # nothing of it depends on the dtype


@pytest.mark.parametrize(
    "durations, slow",
    [
        pytest.param({"f.py::a": SLOW, "f.py::b": SLOW + 1}, {"f.py::b"}, id="longer than the limit"),
        pytest.param({"f.py::a": None}, {"f.py::a"}, id="not measured yet"),
        pytest.param(
            {"f.py::a[1]": 0.6 * SLOW, "f.py::a[2]": 0.3 * SLOW, "f.py::a[3]": 0.5 * SLOW, "f.py::a[4]": None},
            {"f.py::a[1]", "f.py::a[4]"},
            id="the quickest cases of a test share the limit",
        ),
        pytest.param(
            {"tests/test_docs.py::a[1]": 0.9 * SLOW, "tests/test_docs.py::a[2]": 0.8 * SLOW},
            set(),
            id="each example has it for itself",
        ),
    ],
)
def test_what_is_slow(durations, slow):
    assert slow_cases(durations) == slow


@pytest.mark.parametrize(
    "durations, rare",
    [
        pytest.param({"f.py::a": RARE + 1, "f.py::b": None}, set(), id="one case of each test runs"),
        pytest.param({"f.py::a": LONG + 1}, {"f.py::a"}, id="but none that is too long"),
        pytest.param(
            {"f.py::a[1]": 0.6 * RARE, "f.py::a[2]": 0.3 * RARE, "f.py::a[3]": 0.5 * RARE, "f.py::a[4]": None},
            {"f.py::a[1]", "f.py::a[4]"},
            id="the quickest cases of a test share the limit",
        ),
    ],
)
def test_what_is_rare(durations, rare):
    assert rare_cases(durations) == rare
    assert rare <= slow_cases(durations)


def test_what_was_measured_exists():
    assert [name for name in DURATIONS if not exists(name)] == []


def test_no_marker_calls_a_test_slow():
    marker = "mark" + ".slow"
    found = [path.name for path in (ROOT / "tests").rglob("*.py") if marker in path.read_text()]
    assert found == ["conftest.py"]
