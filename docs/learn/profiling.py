# %% [markdown]
# # Profiler traces and asynchronous dispatch
#
# `jax.jit` returns before the result exists: the computation is queued, and Python continues (asynchronous dispatch).
# A clock around a call therefore measures the queue, not the computation. A profiler trace records what each thread
# and each device really does.
#
# ## Measure time correctly

# %%
import gzip
import json
import pathlib
import tempfile
import time

import jax
import jax.numpy as jnp

import sciml

pendulum = sciml.models.Pendulum()
angles = jnp.linspace(0.1, 2.0, 2_000)


@jax.jit
def swing(angles):
    def one(angle):
        y0 = jnp.stack([angle, 0.0 * angle])
        return sciml.solve(pendulum, y0, t0=0.0, t1=10.0, dt=0.01).ys[-1, 0]

    with jax.named_scope("swing"):
        return jax.vmap(one)(angles)


swing(angles).block_until_ready()  # compiles

start = time.perf_counter()
result = swing(angles)
queued = time.perf_counter() - start
result.block_until_ready()
done = time.perf_counter() - start
print(f"returned after {queued / done:.0%} of the time")

# %% [markdown]
# `block_until_ready` waits. So do `print`, `float(x)`, `np.asarray(x)` and `if x > 0`, because each needs the value:
# in a training loop, `print(loss)` in every step stops the queue. On a CPU, JAX runs small programs at once instead
# of queueing them; on a GPU or TPU almost every call returns immediately.
#
# ## Record a trace
#
# `jax.profiler.trace` writes a folder. `TraceAnnotation` names a part of the Python code. `jax.named_scope` names
# operations of a traced function, also within `jit`; XProf lists these names on a GPU or TPU:

# %%
folder = pathlib.Path(tempfile.mkdtemp())
with jax.profiler.trace(folder, create_perfetto_trace=True):
    with jax.profiler.TraceAnnotation("ensemble"):
        start = time.perf_counter()
        swing(angles).block_until_ready()
        measured = time.perf_counter() - start
    with jax.profiler.TraceAnnotation("on the host"):
        time.sleep(0.1)

trace = next(folder.rglob("perfetto_trace.json.gz"))
print(sorted(path.name.split(".", 1)[-1] for path in trace.parent.iterdir()))

# %% [markdown]
# Drop `perfetto_trace.json.gz` into [ui.perfetto.dev](https://ui.perfetto.dev), or open the folder in TensorBoard or
# XProf (`pip install xprof`, `xprof --logdir FOLDER`), which also computes the time of each operation on a GPU or
# TPU. The file is JSON: events with a name, a start and a duration in microseconds. You can read it in Python:

# %%
with gzip.open(trace) as file:
    events = json.load(file)
events = events if isinstance(events, list) else events["traceEvents"]
spans = {name: 0.0 for name in ("ensemble", "on the host")}
for event in events:
    if event.get("name") in spans:
        spans[event["name"]] += event["dur"] * 1e-6
print({name: f"{seconds / sum(spans.values()):.0%}" for name, seconds in spans.items()})

# %% [markdown]
# ## What to look for
#
# - **Gaps on the device** between operations: the host is too slow. Move the loop into `jit` (`lax.scan`), or remove
#   prints and conversions.
# - **One long operation**: look at its line in the source, and at its bytes and operations
#   ([fusion](fusion.md), [roofline](../scale/machine.md)).
# - **Compilation**: events such as `backend_compile` in the second call. A shape or a static argument changed
#   ([static arguments and buckets](buckets.md)).
# - **Messages** between devices that no computation overlaps ([how shardings propagate](propagation.md)).
#
# ## Exercise
#
# This loop converts each result to a Python number:
#
#     waiting = [float(swing(angles * (1 + i))[0]) for i in range(3)]
#
# Where does Python wait? Change the loop so that it waits only once, and time both loops.

# %% Answer
# Each call of `swing` returns early, but `float` waits for its result, so the next call starts only afterwards.
# Keep the arrays, and convert them together at the end: meanwhile Python can prepare the next calls.
start = time.perf_counter()
waiting = [float(swing(angles * (1 + i))[0]) for i in range(3)]
middle = time.perf_counter()
queue = [swing(angles * (1 + i))[0] for i in range(3)]
queue = [float(x) for x in jax.device_get(queue)]
end = time.perf_counter()
print(f"waiting in each turn {middle - start:.2f} s, once {end - middle:.2f} s")
assert waiting == queue

# %% [markdown]
# ## Use in sciml
#
# `sciml.inspect.report` measures a solve without a profiler: compile time, run time, memory, and the share of the
# machine that it uses ([profiling and debugging](../guides/insight.md)). `sciml.inspect.compile_time` splits the
# time to the first result. Use a trace for programs that consist of more than one solve: training loops, sweeps with
# stores, several devices.

# %%
error = abs(spans["ensemble"] / measured - 1)
assert error < 0.3
print(f"figure of merit: {error:.1e} < 3e-01 (duration in the trace, and by the clock)")
