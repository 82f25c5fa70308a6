# %% [markdown]
# # How shardings propagate
#
# You shard the inputs of a program. The partitioner of the compiler (Shardy; GSPMD in older versions) decides where
# every intermediate value is stored, and adds messages between devices where an operation needs data of another
# device. Its rules are simple, and they tell you the cost of a program before you run it.
#
# ## Rules for operations
#
# | Operation | Sharding of the result | Messages |
# |---|---|---|
# | elementwise, inputs sharded alike | the same | none |
# | elementwise, inputs sharded differently | one of them | moves the other input |
# | broadcast, transpose | axes follow their dimensions | none |
# | sum over an unsharded dimension | the remaining dimensions | none |
# | sum over a sharded dimension | replicated along its mesh axis | all-reduce of the result |
# | product, sharded in a batch or free dimension | the same dimension | none |
# | product, sharded in the contracted dimension | replicated along its mesh axis | all-reduce of the result |
# | shift, stencil along a sharded dimension | the same | collective-permute of the edges |
# | sort, FFT, solve along a sharded dimension | depends on the compiler | moves whole arrays |
#
# A product $C_{ij} = \sum_k A_{ik} B_{kj}$ shows the difference: `i` and `j` are free dimensions, and `k` is
# contracted. If each device holds some rows of $A$ and all of $B$, it computes its rows of $C$ alone. If it holds some
# columns of $A$ and the same rows of $B$, it computes a full-sized part of each $C_{ij}$, and the parts must be added.

# %%
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml

jax.config.update("jax_num_cpu_devices", 4)  # before any use of a device
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))


def placed(array, *spec):
    return jax.device_put(array, NamedSharding(mesh, P(*spec)))


def look(name, fn, *arrays):
    """Prints the sharding of a result and the messages of its program."""
    result = jax.jit(fn)(*arrays)
    kinds = sorted({message.kind for message in sciml.inspect.collectives(fn, *arrays)})
    print(f"{name:28} {result.sharding.spec!s:22} {', '.join(kinds) or 'no message'}")
    return kinds


n = 256
A = jax.random.normal(jax.random.key(0), (n, n))
B = jax.random.normal(jax.random.key(1), (n, n))
rows, columns, whole = placed(A, "d", None), placed(A, None, "d"), placed(B)

found = {
    "sin": look("sin of rows", jnp.sin, rows),
    "transpose": look("transpose of rows", jnp.transpose, rows),
    "sum within": look("sum within rows", lambda a: a.sum(1), rows),
    "sum across": look("sum across rows", lambda a: a.sum(0), rows),
    "free": look("rows of A times B", jnp.matmul, rows, whole),
    "contracted": look("columns of A, rows of B", jnp.matmul, columns, placed(B, "d", None)),
    "shift": look("difference across rows", lambda a: a - jnp.roll(a, 1, 0), rows),
}

# %% [markdown]
# The first three operations and the fifth need no message. The others communicate only the result of a sum or the
# edges of shards, not the input.
#
# ## Rules as types
#
# With explicit axes the same rules belong to the types of arrays, and tracing applies them. You can read each result
# without compilation: `float32[256@d,256]` is an array whose first dimension is sharded along `d`. A product that
# contracts a sharded dimension is an error, since its result may be replicated or sharded again: `out_sharding`
# chooses, here the former. A sum over a sharded dimension is always replicated along its axis:

# %%
explicit = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(explicit):
    rows_, columns_ = jax.device_put(A, P("d", None)), jax.device_put(A, P(None, "d"))
    print(jax.typeof(jnp.sin(rows_)), jax.typeof(rows_.T), jax.typeof(rows_.sum(0)))
    try:
        columns_ @ rows_
    except Exception as refused:
        print(type(refused).__name__)
    else:
        raise AssertionError("where is the sum over a contracted, sharded dimension?")
    added = jnp.matmul(columns_, rows_, out_sharding=P(None, None))
    print(jax.typeof(added))

# %% [markdown]
# ## The bytes of a message
#
# Rules give the kinds of messages, and shapes give their sizes. `sciml.inspect.collectives` prints both, so that you
# can compare two shardings of a computation before you run it. `bytes` is the size of the result on one device. Here
# the product of $A$ and its transpose either gathers $A$ on every device, or adds the parts of the product. On $d$
# devices, each device receives $(d - 1) / d$ of the result in an all-gather, and twice as much in an all-reduce:

# %%
for name, array in {"by rows": rows, "by columns": columns}.items():
    messages = sciml.inspect.collectives(lambda a: (a @ a.T).sum(0), array)
    print(f"{name:12}", [(message.kind, message.bytes) for message in messages])
    received = sum(
        message.bytes * 3 / 4 * (1 + (message.kind == "all-reduce")) for message in messages
    )
    print(f"{'':12} each device receives {received:.0f} bytes")

# %% [markdown]
# ## Exercise
#
# A linear layer computes `x @ W` for a batch `x` of shape `(batch, inputs)`. In data parallelism the batch is
# sharded and `W` is replicated. Which message does the forward pass need, and which one the gradient by `W`? Write
# down both, then check.

# %% Answer
# The forward pass contracts `inputs`, which is not sharded: no message. The gradient `x.T @ dy` contracts the
# batch: an all-reduce of the size of `W`. It is the only message of data-parallel training.
x, W = placed(A, "d", None), placed(B)
forward = look("x @ W", jnp.matmul, x, W)
backward = look("gradient by W", jax.grad(lambda W, x: jnp.sum(jnp.tanh(x @ W))), W, x)
assert forward == [] and backward == ["all-reduce"]

# %% [markdown]
# ## Use in sciml
#
# The members of an ensemble are a batch dimension in every operation of a solve, so a sharded ensemble needs no
# message ([ensembles](../guides/ensembles.md#sharded-arrays-on-several-devices)). A field that is sharded in space
# needs the shifts of its stencil in every stage ([domain decomposition](../guides/domains.md)). [Feature
# compatibility](../guides/compatibility.md) lists the combinations that are tested. [Meshes and
# shardings](meshes.md) introduces the notation, and [tensor parallelism](tensor_parallel.md) chooses the dimensions
# of a network so that one all-reduce suffices.

# %%
expected = {
    "sin": [],
    "transpose": [],
    "sum within": [],
    "sum across": ["all-reduce"],
    "free": [],
    "contracted": ["all-reduce"],
    "shift": ["collective-permute"],
}
wrong = sum(found[name] != kinds for name, kinds in expected.items())
assert wrong < 1
print(f"figure of merit: {wrong} < 1 (rules of the table that the compiled programs break)")
