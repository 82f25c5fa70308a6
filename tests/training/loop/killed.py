"""A training in a process of its own: `killed.py FOLDER KIND [STEPS SECONDS]`, which kills itself so much later."""

import os
import signal
import sys
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import sciml
from sciml import training


class Loader:
    def __iter__(self):
        order = np.random.default_rng(0).permutation(40)
        return ({"x": X[order[i : i + 8]], "y": Y[order[i : i + 8]]} for i in range(0, 40, 8))


X = np.linspace(-1.0, 1.0, 40, dtype=np.float32)[:, None]
Y = np.sin(3 * X)


def loss(model, batch, key):
    x = batch["x"] + 0.01 * jax.random.normal(key, batch["x"].shape)
    return jnp.mean((jax.vmap(model)(x) - batch["y"]) ** 2), {"size": jnp.sum(model.layers[0].weight ** 2)}


def hole(model, batch, key):
    """NaN in some steps, which are skipped."""
    value, metrics = loss(model, batch, key)
    return value + jnp.log(jax.random.uniform(key) - 0.05), metrics


if __name__ == "__main__":
    folder, kind, *after = sys.argv[1:]
    seen = 0

    def progress(report):
        global seen
        seen += 1
        if after and seen == int(after[0]):
            threading.Timer(float(after[1]), os.kill, (os.getpid(), signal.SIGKILL)).start()
        time.sleep(0.002)

    model = eqx.nn.MLP(1, 1, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
    optimiser = optax.chain(optax.add_noise(0.01, 0.5, jax.random.key(1)), optax.adam(1e-2))
    data, store = {"x": X, "y": Y}, folder
    options = dict(batch_size=12, validation=(data), average=0.9, skip_nonfinite=3)
    if kind == "loader":
        data = Loader()
        options = dict(validation={"x": X, "y": Y})
    elif kind == "orbax":
        store = sciml.stores.OrbaxStore(folder)
    found = training.train(
        model,
        hole if kind == "rows" else loss,
        data,
        optimiser=optimiser,
        steps=60,
        check_every=7,
        checkpoints=store,
        checkpoint_every=0.0,
        progress=progress,
        callbacks=[training.CSVLog(f"{folder}.csv")],
        **options,
    )
    arrays = jax.tree.leaves(eqx.filter((found.model, found.last_model, found.history), eqx.is_array))
    np.savez(f"{folder}.npz", *map(np.asarray, arrays))
    os.write(1, found.message.encode())
    os._exit(0)
