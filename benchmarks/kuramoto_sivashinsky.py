"""Fifty trajectories of the Kuramoto-Sivashinsky equation on 128 x 128 points, forward and gradient, beside exponax."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, jitted

MEMBERS = int(os.environ.get("SCIML_KS_MEMBERS", "50"))
STEPS = int(os.environ.get("SCIML_KS_STEPS", "200"))
POINTS = int(os.environ.get("SCIML_KS_POINTS", "128"))
LENGTH = 60.0
DT = 0.1


def starts() -> jax.Array:
    """Small smooth heights."""
    rng = np.random.default_rng(0)
    x = np.arange(POINTS) / POINTS
    waves = [np.stack([np.cos(2 * np.pi * k * x), np.sin(2 * np.pi * k * x)]) for k in range(1, 4)]
    basis = np.concatenate(waves)
    return jnp.asarray(np.einsum("mab,ax,by->mxy", rng.normal(size=(MEMBERS, 6, 6)) / 6, basis, basis), jnp.float32)


class Unmixed(sciml.AbstractSemilinear):
    """The equation as exponax has it: fourth derivatives along each axis, and none mixed."""

    whole: sciml.models.IntegralKuramotoSivashinsky

    def transform(self, y: jax.Array) -> jax.Array:
        return self.whole.transform(y)

    def inverse(self, modes: jax.Array) -> jax.Array:
        return self.whole.inverse(modes)

    def rest(self, t: Any, modes: jax.Array, args: Any) -> jax.Array:
        return self.whole.rest(t, modes, args)

    def linear(self, args: Any) -> jax.Array:
        k = 2 * np.pi * np.fft.fftfreq(POINTS, LENGTH / POINTS)[:, None]
        half = 2 * np.pi * np.fft.rfftfreq(POINTS, LENGTH / POINTS)[None]
        return jnp.asarray(k**2 + half**2 - k**4 - half**4, jnp.result_type(float))


def groups() -> list[Group]:
    import exponax  # in the extra `bench`

    model = Unmixed(sciml.models.IntegralKuramotoSivashinsky(shape=(POINTS, POINTS), length=LENGTH))
    u0 = starts()

    def ours(solver: Any, adjoint: Any = None) -> Any:
        def end(u: jax.Array) -> jax.Array:
            return sciml.solve(model, u, t0=0.0, t1=STEPS * DT, dt=DT, solver=solver, adjoint=adjoint).ys[-1]

        return jax.vmap(end)

    def theirs(order: int) -> Any:
        step = exponax.stepper.KuramotoSivashinsky(2, LENGTH, POINTS, DT, order=order)
        repeated = exponax.repeat(step, STEPS)
        return jax.vmap(lambda u: repeated(u[None])[0])

    def gradient(run: Any) -> Any:
        return jax.grad(lambda u: jnp.mean(run(u) ** 2))

    # exponax keeps all that its steps compute; sciml by default no more than 256 MiB
    every = sciml.adjoints.Checkpointed(levels=1)
    found = []
    for order, solver in ((2, sciml.solvers.ETDRK(order=2)), (4, sciml.solvers.ETDRK(order=4))):
        reference = np.asarray(jax.jit(theirs(order))(u0), np.float64)

        def error(out: Any, reference: np.ndarray = reference) -> float:
            """The largest difference from exponax, over the largest height; exponax holds the mean height at zero."""
            out = np.asarray(out, np.float64)
            out = out - out.mean((1, 2), keepdims=True)
            wanted = reference - reference.mean((1, 2), keepdims=True)
            return float(np.max(np.abs(out - wanted)) / np.max(np.abs(wanted)))

        rows = [
            Candidate("sciml", jitted(ours(solver), u0), error=error),
            Candidate("exponax", jitted(theirs(order), u0), "sciml", error),
            Candidate("sciml, gradient", jitted(gradient(ours(solver)), u0)),
            Candidate("sciml, gradient, all states kept", jitted(gradient(ours(solver, every)), u0), "sciml, gradient"),
            Candidate("exponax, gradient", jitted(gradient(theirs(order)), u0), "sciml, gradient"),
        ]
        title = f"Kuramoto-Sivashinsky, {MEMBERS} x {STEPS} steps x {POINTS}^2, ETDRK{order}, float32, end state"
        found.append(Group(title, rows, repeats=3))
    return found
