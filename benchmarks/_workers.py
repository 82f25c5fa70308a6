"""Rows that run in processes of their own, since the number of CPU devices is fixed when a process starts."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any


def in_processes(
    module: str, *arguments: Any, count: int = 1, result: Callable[[], Any] = lambda: None
) -> Callable[[], Callable[[], Any]]:
    """A `build` of so many processes of a module, which run side by side.

    Each prints "ready" when it has compiled, and "done" after a run, which it starts for every line that comes in.
    `result` returns what they have made of it.
    """

    def build() -> Callable[[], Any]:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(count)]

        def run() -> Any:
            for worker in workers:
                worker.stdin.write("go\n")
                worker.stdin.flush()
            wait("done")
            return result()

        def wait(word: str) -> None:
            for worker in workers:
                if worker.stdout.readline().strip() != word:
                    raise RuntimeError("a worker has ended")

        wait("ready")
        return run

    return build
