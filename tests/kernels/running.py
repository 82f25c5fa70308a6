"""What the tests of kernels let run, in a word: "interpret_tpu" is the kernel for TPUs in JAX's interpreter."""

import jax

import sciml
from sciml.kernels import _backends, _verdicts, stencil
from sciml.kernels._backends import KernelRequest
from sciml.kernels._use import using


def running(word):
    """A block in which everything runs as a word says."""
    if not isinstance(word, str):  # a kernel
        return using(KernelRequest(word))
    kind, _, target = word.partition("_")
    if kind == "interpret":
        return using(KernelRequest(f"mosaic_{target}" if target else "pallas", interpret=True))
    return using(KernelRequest(word))


def solve(*args, impl="auto", **how):
    """`sciml.solve`, which takes no kernel by its name."""
    with running(impl):
        return sciml.solve(*args, **how)


def evolve(*args, impl="auto", **how):
    """`kernels.stencil.evolve`, which takes none either."""
    with running(impl):
        return stencil.evolve(*args, **how)


def believe(monkeypatch, taken, reason="it is believed"):
    """As if this machine were a GPU of whose kernels this is known."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def verdict_of(kernel, trial):
        return _verdicts.Verdict(kernel, trial.what, taken, reason, 0.0, 2.0)

    monkeypatch.setattr(_backends, "verdict_of", verdict_of)
