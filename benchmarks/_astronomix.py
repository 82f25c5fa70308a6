"""The Euler equations by astronomix, a library of JAX for gas in astrophysics, where it is installed."""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._harness import Candidate

LABELS = {
    "astronomix, MUSCL and HLLC, 2 evaluations a step": ("FINITE_VOLUME", "RK2_SSP", 2),
    "astronomix, WENO5 by finite differences, 5 evaluations a step": ("FINITE_DIFFERENCE", "RK4_SSP", 5),
}
"""Its schemes, and how often each evaluates its fluxes in a step."""


def rows(
    primitive: np.ndarray, steps: int, dt: float, gamma: float, error: Callable[[Any], float], against: str
) -> list[Candidate]:
    """Returns its rows, none where it is not installed.

    Args:
        primitive: Density, both velocities and pressure on a periodic square of unit sides.
        steps: How many steps there are.
        dt: Their size.
        gamma: The ratio of specific heats.
        error: What says how far an end state, in primitive variables, is off.
        against: The row whose time theirs are divided by.
    """
    try:
        import astronomix  # pyright: ignore[reportMissingImports]
        from astronomix.option_classes import (  # pyright: ignore[reportMissingImports]
            simulation_config as kinds,
        )
    except ImportError:
        return []

    def build(mode: str, method: str) -> Callable[[], Callable[[], Any]]:
        def built() -> Callable[[], Any]:
            side = kinds.BoundarySettings1D(kinds.PERIODIC_BOUNDARY, kinds.PERIODIC_BOUNDARY)
            config = astronomix.SimulationConfig(
                box_size=1.0, num_cells=primitive.shape[-1], dimensionality=2, progress_bar=False,
                backend=kinds.NATIVE_JAX, solver_mode=getattr(kinds, mode), time_integrator=getattr(kinds, method),
                riemann_solver=kinds.HLLC, split=kinds.UNSPLIT, limiter=kinds.MINMOD, fixed_timestep=True,
                num_timesteps=steps, exact_end_time=False, boundary_settings=kinds.BoundarySettings(side, side, side),
            )  # fmt: skip
            params = astronomix.SimulationParams(t_end=steps * dt, gamma=gamma)
            names = astronomix.get_registered_variables(config)
            state = astronomix.construct_primitive_state(
                config=config, registered_variables=names, density=jnp.asarray(primitive[0]),
                velocity_x=jnp.asarray(primitive[1]), velocity_y=jnp.asarray(primitive[2]),
                gas_pressure=jnp.asarray(primitive[3]),
            )  # fmt: skip
            config = astronomix.finalize_config(config, state.shape)
            with contextlib.redirect_stdout(io.StringIO()):  # it tells of its choices
                program = jax.jit(lambda state: astronomix.time_integration(state, config, params, names))
                compiled = program.lower(state).compile()
            return lambda: jax.block_until_ready(compiled(state))

        return built

    return [Candidate(label, build(mode, method), against, error) for label, (mode, method, _) in LABELS.items()]
