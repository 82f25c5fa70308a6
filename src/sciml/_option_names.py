"""Option names of other libraries: a call with one of them raises an error that names sciml's own option."""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def _named(option: str, names: str) -> dict[str, str]:
    """Returns an entry for each of several names."""
    return dict.fromkeys(names.split(), option)


_DTMAX = "stepsize_controller=diffrax.PIDController(rtol=..., atol=..., {}=...)"
_COMPUTED = "computed from the program of the model, with its zeros, and need not be given"
_KEY = _named("key=jax.random.key(0)", "seed rng random_state rngs prng prng_key")
_KERNELS = _named("set for a block of code, `with sciml.kernels.use(...):`", "impl interpret backend kernel")
_PROGRESS = _named("progress=True", "verbose disp progress_bar progress_meter")

_STEPS = {
    **_named("t0=..., t1=...", "t_span tspan t_range time_span interval"),
    **_named("t0=", "t_start start_time"),
    **_named("t1=", "t_final tf t_end tend T t_max duration end_time t_bound"),
    **_named("solver=", "method alg algorithm integrator stepper"),
    **_named("dt=", "step_size stepsize step h timestep time_step"),
    **_named("dt0=", "first_step h0 initial_step"),
    **_named(_DTMAX.format("dtmax"), "max_step dtmax hmax max_dt"),
    **_named(_DTMAX.format("dtmin"), "min_step dtmin hmin min_dt"),
    **_named("stepsize_controller=", "controller step_size_controller"),
    **_named("rtol=", "reltol rel_tol"),
    **_named("atol=", "abstol abs_tol"),
    **_named("rtol=..., atol=...", "tol tolerance eps"),
    **_named("args=", "p params parameters theta extra_args fargs func_args"),
    **_named("events=", "event callback callbacks discrete_terminating_event"),
    **_named("max_steps=", "nsteps max_num_steps mxstep maxiters max_iter num_steps n_steps steps"),
    **_named(_COMPUTED, "jac jacobian Dfun jac_sparsity sparsity lband uband ml mu col_deriv"),
    **_named("solver=sciml.solvers.Rodas5P(mass=...)", "mass mass_matrix M"),
    **_named("the first argument, the model", "func fun f rhs vector_field ode terms term ode_fn"),
    **_named("the second argument, `y0`", "u0 x0 state0 initial_state initial_condition initial"),
    **_KEY,
}

_SOLVE = {
    **_STEPS,
    **_named("saveat=", "t_eval ts t teval save_at times save_times tout"),
    **_named("saveat=, the times themselves; `simulate` has such an option", "save_every"),
    **_named(
        "saveat=diffrax.SaveAt(dense=True), with which `sol.evaluate(t)` is the state at a time", "dense_output dense"
    ),
    **_named("saveat=diffrax.SaveAt(steps=True)", "save_everystep save_steps"),
    **_named("adjoint=", "sensealg adjoint_method adjoint_params sensitivity gradient"),
    **_named("left to `jax.vmap`, where each member has its own steps", "in_axes batch batched vectorized"),
    **_named(
        "an option of `sciml.simulate`, which shows how far it is", "progress verbose disp progress_bar progress_meter"
    ),
    **_named("batching=", "schedule"),
    **_KERNELS,
}

_SIMULATE = {
    **_STEPS,
    **_PROGRESS,
    **_KERNELS,
    **_named("saveat=", "t_eval ts t teval save_at times save_times tout"),
    **_named("save_every=", "record_every log_every output_every save_interval every"),
    **_named("store=", "path out directory folder save_to filename file output_dir"),
    **_named("stop=", "stop_when until condition stopping"),
    **_named("an option of `sciml.solve`, which goes on by `resume=`", "project adjoint norm batching schedule"),
}

_FIT = {
    **_named("the first argument: its parameters are where the fit starts", "x0 p0 params init initial y0 guess"),
    **_named("the second argument, the function that returns the residuals", "loss fun func objective loss_fn cost f"),
    **_named("the third argument, the data", "xdata ydata X x y dataset"),
    **_named("bounds=", "lb ub lower upper limits constraints min max"),
    **_named("solver=, least squares of optimistix", "method optimizer optimiser optim algorithm"),
    **_named("max_steps=", "maxiter max_iter max_nfev maxfev steps epochs n_steps num_steps iterations niter"),
    **_named("rtol=..., atol=...", "ftol xtol gtol tol tolerance"),
    **_named("an option of `sciml.training.train`; `fit` chooses its steps", "lr learning_rate batch_size"),
    **_named("starts=", "n_starts restarts n_restarts multistart num_starts"),
    **_named("covariance=", "pcov cov"),
    **_named("where=", "trainable free fixed freeze vary"),
    **_named("positive=True", "nonnegative log_scale"),
    **_named(_COMPUTED, "jac jacobian Dfun jac_sparsity"),
    **_named("a factor of the residuals", "weights weight"),
    **_KEY,
    **_PROGRESS,
}

_TRAIN = {
    **_named("optimiser=optax.adam(...)", "lr learning_rate optimizer optim tx opt solver"),
    **_named("optimiser=, with a schedule of optax as its learning rate", "schedule scheduler lr_scheduler warmup"),
    **_named("optimiser=optax.adamw(...)", "weight_decay decay l2 alpha"),
    **_named(
        "optimiser=optax.chain(optax.clip_by_global_norm(1.0), ...)",
        "clip grad_clip clip_norm max_norm max_grad_norm gradient_clip_val clipnorm",
    ),
    **_named("epochs=", "n_epochs num_epochs nepochs max_epochs"),
    **_named("steps=", "n_steps num_steps max_steps max_iter maxiter iterations niter n_iter"),
    **_named("batch_size=", "batchsize batch bs minibatch minibatch_size"),
    **_named("validation=", "val_data validation_data valid val eval_set valid_data val_dataset eval_dataset"),
    **_named("check_every=", "eval_every val_check_interval validate_every log_every eval_steps validation_freq"),
    **_named("patience=", "early_stopping n_iter_no_change early_stop"),
    **_named("callbacks=", "callback hooks"),
    **_named("where=", "trainable free freeze params filter_spec"),
    **_named("the first argument, the model", "net network module init_params"),
    **_named("the second argument, the loss", "loss_fn criterion objective cost fun"),
    **_named("the third argument, the data", "dataset dataloader loader train_data x y X xs ys train_loader"),
    **_named("average=", "ema ema_decay polyak swa"),
    **_named("compute_dtype=", "dtype precision amp mixed_precision half"),
    **_named("mesh=", "device devices sharding n_devices strategy accelerator"),
    **_named("checkpoints=", "checkpoint checkpoint_dir ckpt_dir save_dir"),
    **_named("checkpoint_every=", "save_every save_steps save_interval"),
    **_named("drawn by `key=`", "shuffle sampler"),
    **_KEY,
    **_PROGRESS,
}

_ENSEMBLE = {
    **_named("mesh=", "device devices n_devices n_jobs sharding num_workers max_workers"),
    **_named("block=", "chunk_size chunksize chunks batch_size block_size max_batch"),
    **_named("the third argument, `shared`, the same for all members", "fixed constants static args common data"),
    **_named(
        "the first axis of every array of `params`",
        "in_axes axis size n axis_size members n_members",
    ),
    **_named("the second argument, `params`", "xs samples inputs points grid points_list"),
}

_SWEEP = {
    **_ENSEMBLE,
    **_named("store=", "path out directory folder save_to filename file cache output_dir checkpoint checkpoints"),
    **_named("executor=", "pool backend client workers scheduler"),
    **_named("reduce=", "reducer reduction aggregate agg"),
    **_named("on_fail=", "errors on_error catch error skip_failed"),
    **_named("batching=", "schedule"),
    **_KEY,
    **_PROGRESS,
}

_STEADY = {name: option for name, option in _STEPS.items() if option in ("solver=", "rtol=", "atol=", "args=")} | {
    **_named("max_steps=", "maxiter max_iter maxfev iterations"),
    **_named("rtol=..., atol=...", "tol xtol ftol tolerance"),
    **_named("the first argument, the model", "fun func f rhs"),
    **_named("the second argument, `y0`", "x0 u0 guess initial"),
    **_named(_COMPUTED, "jac jacobian fprime"),
    **_named(
        "an option of `sciml.solve`, which with `adjoint=sciml.adjoints.Implicit()` runs to the state at rest",
        "positive domain project",
    ),
}

_CONTINUATION = {name: option for name, option in _STEADY.items() if option not in ("solver=", "max_steps=")} | {
    **_named("bounds=", "p_min p_max p_span p_range lower upper parameter_range ICP"),
    **_named("where=", "lens parameter param p_index"),
    **_named("points=", "max_steps n_steps NMX n_points num_points"),
    **_named("max_step=", "ds dsmax ds_max step_size step"),
    **_named("left out: it is adapted to the curvature of the branch", "dsmin ds_min ds0"),
    **_named("special=", "n_special max_special detect_bifurcation"),
    **_named("eigenvalues=", "nev n_eigenvalues stability"),
    **_named("intervals=", "ntst NTST mesh n_intervals"),
}

_STEADY_STATES = {
    name: option for name, option in _STEADY.items() if option[:5] not in ("solve", "max_s", "rtol=", "atol=")
} | {
    **_named("count=", "n number max_states"),
}

_NOT_OF_CYCLES = ("solver=", "max_steps=", "atol=", "rtol=..., atol=...")

_LIMIT_CYCLE = {name: option for name, option in _STEADY.items() if option not in _NOT_OF_CYCLES} | {
    **_named("rtol=", "tol tolerance eps"),
    **_named("period=", "T T0 t1 period_guess"),
    **_named("intervals=", "ntst NTST mesh nodes n_intervals points"),
}

_LOCATE = {name: option for name, option in _CONTINUATION.items() if option in ("where=", "args=")} | {
    **_named("kind=", "type bifurcation point_type"),
    **_named("the first argument, the model", "fun func f rhs"),
    **_named("the second argument, `y0`", "x0 u0 guess initial"),
    **_named("the value of the parameter in the model, which is the guess", "p0 parameter0 bounds"),
}

_LOCUS = {
    name: option for name, option in _CONTINUATION.items() if option in ("where=", "args=", "points=", "max_step=")
} | {
    **_named("kind=", "type bifurcation point_type"),
    **_named("along=", "where2 second other parameter2"),
    **_named("bounds=, of the second parameter", "p_min p_max p_span p_range lower upper"),
    **_named("the second argument, `point`", "x0 u0 y0 guess initial"),
}

_OPTIMISE = {
    **_named("t1=", "t_final tf t_end T horizon t_f"),
    **_named("args=", "p params parameters theta"),
    **_named("segments=", "N n_segments num_intervals intervals mesh K nodes"),
    **_named("degree=", "order collocation_points d"),
    **_named("control_degree=", "hold zoh control_order"),
    **_named("rtol=", "tol tolerance"),
    **_named("max_steps=", "maxiter max_iter iterations"),
    **_named("guess=", "initial_guess warm_start x_init u_init"),
    **_named("ControlProblem(u_bounds=(lower, upper))", "u_min u_max bounds control_bounds u_bounds"),
    **_named("ControlProblem(y_bounds=(lower, upper))", "x_min x_max state_bounds y_bounds"),
    **_named("ControlProblem(t1_bounds=(lower, upper))", "free_time t1_bounds"),
    **_named("the second argument, `y0`", "x0 initial_state"),
}

_RECEDING_HORIZON = {
    name: option for name, option in _OPTIMISE.items() if option not in ("t1=", "guess=", "control_degree=")
} | {
    **_named("steps=", "n_steps num_steps sim_steps"),
    **_named("horizon=", "T prediction_horizon t1"),
    **_named("horizon= and segments=, whose ratio is the length of a step", "dt sampling_time Ts"),
    **_named("plant=", "simulator system real_model"),
    **_named("max_steps=", "maxiter max_iter"),
}

_SENSITIVITY = {
    **_named("fn=", "function func f model_fn"),
    **_named("bounds=", "ranges problem"),
    **_named("n=", "N num_samples samples"),
    **_KEY,
}

OTHER_NAMES: Mapping[str, Mapping[str, str]] = {
    "solve": _SOLVE,
    "simulate": _SIMULATE,
    "steady_state": _STEADY,
    "continuation": _CONTINUATION,
    "limit_cycle": _LIMIT_CYCLE,
    "steady_states": _STEADY_STATES,
    "locate": _LOCATE,
    "locus": _LOCUS,
    "optimise": _OPTIMISE,
    "receding_horizon": _RECEDING_HORIZON,
    "fit": _FIT,
    "train": _TRAIN,
    "ensemble": _ENSEMBLE,
    "sweep": _SWEEP,
    "sobol_indices": _SENSITIVITY,
    "morris_effects": _SENSITIVITY,
}
"""For each function what other libraries call its options: `name=` of its own, or words."""


def knows_other_names(function: _F) -> _F:
    """Refuses unknown options and surplus arguments, with a hint to the name used here.

    The function keeps its signature, which is what help and type checkers show.
    """
    parameters = inspect.signature(function).parameters.values()
    known = {x.name for x in parameters}
    placed = [x.name for x in parameters if x.kind is not x.KEYWORD_ONLY]
    other = OTHER_NAMES[function.__name__]

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not options.keys() <= known:
            unknown = [name for name in options if name not in known]
            raise TypeError(" ".join(_refused(function.__name__, name, known, other) for name in unknown))
        if len(args) > len(placed):
            named = ", ".join(f"`{name}`" for name in placed)
            raise TypeError(
                f"`{function.__name__}` takes {named} in this order and all else by name, as in "
                f"`{function.__name__}({', '.join(placed)}, name=...)`, but got {len(args)} arguments without a name."
            )
        return function(*args, **options)

    return call  # type: ignore[return-value]


def _refused(function: str, name: str, known: Iterable[str], other: Mapping[str, str]) -> str:
    """Returns the hint for one unknown option."""
    if name in other:
        return f"`{function}` has no option `{name}`: it is {_code(other[name])}."
    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"`{function}` has no option `{name}`: did you mean `{near[0]}`?"
    return f"`{function}` has no option `{name}`. It has {', '.join(f'`{x}`' for x in sorted(known))}."


def _code(option: str) -> str:
    """Returns an option marked as code together with its explanation; plain words are returned unchanged."""
    if not re.match(r"[a-z0-9_]+=", option):
        return option
    code, comma, words = (option, "", "") if option.endswith((")", ".")) else option.partition(", ")
    return f"`{code}`{comma}{words}"
