"""Other projects' pytest files, run with functions of theirs replaced by ones that call sciml.

Each test is one case. It is
- passed, if it passes and called sciml;
- refused, if the adapter cannot express an argument (`Refused`), if sciml raises a `ValueError`, `TypeError` or
  `NotImplementedError` of its own, or if the test calls nothing that sciml replaces, and so tests the other project;
- wrong otherwise.

These are rules: no list names single tests. Numbers of steps and evaluations differ between programs; `AnyCount`
compares as true with everything, so that they decide nothing.
"""

import contextlib
import pathlib
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pytest

import sciml

from .outcomes import Outcome

SOURCE = pathlib.Path(sciml.__file__).resolve().parent
LIMIT = 900
"""The seconds of the processor that a test may take, compilation included."""


class Refused(Exception):
    """An argument or result that the adapter cannot express; the text names it."""


class AnyCount(int):
    """A count that compares as true with everything."""

    def _yes(self, other: Any) -> bool:
        del other
        return True

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _yes  # type: ignore[assignment]

    def __ne__(self, other: Any) -> bool:
        return False

    __hash__ = int.__hash__


class Calls:
    """The calls of one test, as adapters note them.

    Attributes:
        count: The number of calls of functions that sciml replaces.
        refusals: The reasons of what was refused among these.
        inside: Whether sciml is running, so that its own calls of the other project are left alone.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begins a new test."""
        self.count, self.refusals, self.inside = 0, [], False

    def refuse(self, reason: str) -> NoReturn:
        """Notes and raises a refusal, also outside of a replaced function."""
        self.refusals.append(reason)
        raise Refused(reason)

    def replacing(self, original: Callable, replacement: Callable) -> Callable:
        """Returns the replacement, which sciml's own calls pass by."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return original(*args, **kwargs)
            self.count += 1
            self.inside = True
            try:
                return replacement(*args, **kwargs)
            except Refused as refusal:
                self.refusals.append(str(refusal))
                raise
            finally:
                self.inside = False

        return call


class _OutOfTime(BaseException):
    """A test took longer than `LIMIT`."""


class _Recorder:
    """A pytest plugin that records outcomes."""

    def __init__(self, calls: Calls, words: Sequence[str], cases: Sequence[str] | None, most: int | None):
        self.calls, self.words, self.cases, self.most = calls, words, cases, most
        self.outcomes: list[Outcome] = []

    def pytest_collection_modifyitems(self, config: Any, items: list) -> None:
        """Runs the tests of files that name a replaced function."""
        kept, other = [], []
        for item in items:
            if self.cases is not None and not any(case in item.nodeid for case in self.cases):
                continue
            text = pathlib.Path(item.fspath).read_text()
            (kept if any(word in text for word in self.words) else other).append(item)
        self.outcomes += [Outcome(_name(item), "refused", _OWN_PARTS) for item in other]
        kept = _some(kept, self.most)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        """Limits the time of a test."""
        self.calls.clear()

        def stop(*_: Any) -> None:
            raise _OutOfTime(f"no result within {LIMIT} s of the processor")

        before = signal.signal(signal.SIGPROF, stop)
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
        """Records the outcome."""
        error = call.excinfo.value if call.excinfo is not None else None
        if call.when == "call" and not isinstance(error, pytest.skip.Exception):
            self.outcomes.append(Outcome(_name(item), *judged(self.calls, error)))
            print(f"{self.outcomes[-1].outcome:8} {_name(item)}  {self.outcomes[-1].why}", flush=True)
        elif call.when == "setup" and error is not None and not isinstance(error, pytest.skip.Exception):
            why = "refused" if isinstance(error, Refused) else "wrong"
            self.outcomes.append(Outcome(_name(item), why, f"its fixtures fail: {_line(error)}"))
        return (yield)

    @pytest.fixture
    def num_parallel_threads(self) -> int:
        """The fixture of pytest-run-parallel, which SciPy's tests ask for."""
        return 1


def _some(items: list, most: int | None) -> list:
    """Returns of each test at most so many cases, evenly spread over all."""
    of_test: dict[str, list] = {}
    for item in items:
        of_test.setdefault(item.nodeid.split("[")[0], []).append(item)
    chosen = []
    for found in of_test.values():
        count = len(found) if most is None else min(most, len(found))
        chosen += [found[i * len(found) // count] for i in range(count)]
    return chosen


_OWN_PARTS = "calls nothing that sciml replaces"


def judged(calls: Calls, error: BaseException | None) -> tuple[Any, str]:
    """Returns the outcome of a test and its reason."""
    if calls.refusals:
        return "refused", calls.refusals[0]
    if error is not None and (said := _own_words(error)) is not None:
        return "refused", said
    if not calls.count:
        return "refused", _OWN_PARTS
    return ("passed", "") if error is None else ("wrong", _line(error))


def _own_words(error: BaseException) -> str | None:
    """Returns the message of an argument error that sciml raised."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        frames = traceback.extract_tb(error.__traceback__)
        last = pathlib.Path(frames[-1].filename) if frames else pathlib.Path()
        is_own = SOURCE in last.resolve().parents and not isinstance(error, sciml.SolveError)
        if is_own and isinstance(error, ValueError | TypeError | NotImplementedError):
            return " ".join(str(error).split())
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return None


def _line(error: BaseException) -> str:
    """Returns what failed, and in which line of the test."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/suite_under_test/" in f.filename]
    where = f"line {frames[-1].lineno}, `{frames[-1].line}`: " if frames else ""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{where}{type(error).__name__}: {text[:200]}" if where else f"{type(error).__name__}: {text[:200]}"


def _name(item: Any) -> str:
    return item.nodeid.split("suite_under_test/")[-1]


def replay(
    files: dict[str, pathlib.Path],
    patches: contextlib.AbstractContextManager,
    calls: Calls,
    words: Sequence[str],
    cases: Sequence[str] | None = None,
    most: int | None = None,
) -> list[Outcome]:
    """Runs tests with functions replaced, and returns their outcomes.

    Args:
        files: The files of the suite by their names in the folder from which they run, a copy.
        patches: Replaces the functions, before the files are imported.
        calls: The calls that the replacements note.
        words: Names of replaced functions: files without any are not run.
        cases: Parts of the names of the tests to run; all by default.
        most: How many cases of each test are run; all by default.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "suite_under_test"
        for name, source in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
        (pathlib.Path(place) / "pytest.ini").write_text("[pytest]\n")
        recorder = _Recorder(calls, words, cases, most)
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no", "-W", "ignore"]
        with patches:
            pytest.main([str(folder), "--rootdir", place, "-c", f"{place}/pytest.ini", *options], [recorder])
        return recorder.outcomes
