"""Runners of test suites that other projects publish.

Each runner is a module with `run(folder, cases=None) -> list[Outcome]`, and a command,
`python -m tests.suites.NAME FOLDER`.
The suites' own files are not part of this repository.
"""
