"""What a drawn vector field is made of; adding an operation is adding a line.

Each takes an array of any shape, the time and a parameter and returns an array of its shape. Those of `SMOOTH` have
continuous derivatives, so that methods of different steps agree; those of `ROUGH` have kinks or jumps, where only the
same steps give the same numbers. Literals are Python's, so that each keeps the dtype of its array.
"""

import jax
import jax.numpy as jnp
import numpy as np


@jax.custom_jvp
def _own_derivative(x):
    return jnp.sin(x)


_own_derivative.defjvp(lambda x, dx: (jnp.sin(x[0]), jnp.cos(x[0]) * dx[0]))


@jax.custom_vjp
def _own_transpose(x):
    return jnp.tanh(x)


_own_transpose.defvjp(lambda x: (jnp.tanh(x), x), lambda x, ct: (ct * (1 - jnp.tanh(x) ** 2),))


def _matrix(x):
    n = x.size
    matrix = np.cos(np.arange(n * n).reshape(n, n)) / n
    return (jnp.asarray(matrix, x.dtype) @ x.reshape(n)).reshape(x.shape)


def _clocked(x, t, a):
    return jax.lax.cond(a > 0.6, jnp.sin, jnp.cos, x + jnp.asarray(t, x.dtype))


def _last_of_scan(x, t, a):
    def body(c, k):
        return 0.5 * c + jnp.sin(k * x), c.sum()

    last, sums = jax.lax.scan(body, x, jnp.arange(1, 3).astype(x.dtype))
    return 0.3 * last + 0.1 * sums[1]


def _rows(x):
    return jnp.atleast_1d(x)


def _at_time(x, t, a):
    row = jnp.clip(jnp.floor(jnp.asarray(t, x.dtype) * 4).astype(jnp.int32), 0, _rows(x).shape[0] - 1)
    return x + jnp.broadcast_to(jax.lax.dynamic_index_in_dim(_rows(x), row, 0, keepdims=False), x.shape)


def _by_rule(fn, t, a):
    run = jax.custom_jvp(lambda x: fn(x, t, a))
    run.defjvp(lambda x, dx: jax.jvp(lambda x: fn(x, t, a), x, dx))
    return run


WITHIN = {
    "checkpoint": lambda fn: lambda x, t, a: jax.checkpoint(fn)(x, t, a),
    "turn": lambda fn: lambda x, t, a: jax.lax.scan(lambda c, _: (fn(c, t, a), None), x, None, length=1)[0],
    "rule": lambda fn: lambda x, t, a: _by_rule(fn, t, a)(x),
    "branch": lambda fn: lambda x, t, a: jax.lax.cond(a > 0.4, lambda x: fn(x, t, a), lambda x: -fn(x, t, a), x),
}
"""Where an operation may stand."""

SMOOTH = {
    "sin": lambda x, t, a: jnp.sin(x + jnp.asarray(t, x.dtype)),
    "polyval": lambda x, t, a: jnp.polyval(jnp.asarray([0.1, -0.2, 0.3], x.dtype), jnp.tanh(x)),
    "log2": lambda x, t, a: jnp.log2(1 + x * x),
    "exp2": lambda x, t, a: jnp.exp2(-x * x),
    "rsqrt": lambda x, t, a: x * jax.lax.rsqrt(1 + x * x),
    "logistic": lambda x, t, a: jax.nn.sigmoid(a.astype(x.dtype) * x),
    "erf": lambda x, t, a: jax.lax.erf(x),
    "arctan2": lambda x, t, a: jnp.arctan2(x, 2 + jnp.cos(x)),
    "log1p_expm1": lambda x, t, a: jnp.log1p(jnp.square(x)) + jnp.expm1(-jnp.square(x)),
    "power": lambda x, t, a: (1 + x * x) ** 0.3 - x**3 / (4 + x**4),
    "power_of_two": lambda x, t, a: 0.2 * x**2,
    "conjugate": lambda x, t, a: 0.3 * jnp.conj(x) - 0.1 * jnp.imag(x),
    "cumsum": lambda x, t, a: 0.1 * jnp.cumsum(jnp.sin(_rows(x)), axis=-1).reshape(x.shape),
    "cumprod": lambda x, t, a: jnp.cumprod(jnp.tanh(_rows(x)), axis=0).reshape(x.shape),
    "cumlogsumexp": lambda x, t, a: 0.1 * jax.lax.cumlogsumexp(_rows(x), axis=0).reshape(x.shape),
    "matrix": lambda x, t, a: _matrix(x),
    "dot": lambda x, t, a: jnp.sin(x) * jnp.tanh(jnp.vdot(x, x)),
    "roll": lambda x, t, a: jnp.tanh(jnp.roll(x, 1) - jnp.flip(x)),
    "shifted": lambda x, t, a: jnp.sin(_rows(x).at[1:].set(_rows(x)[:-1]).reshape(x.shape)),
    "gather": lambda x, t, a: jnp.cos(x.reshape(-1)[np.arange(x.size)[::-1] // 2]).reshape(x.shape),
    "mean": lambda x, t, a: jnp.sin(x - jnp.mean(x, keepdims=True).reshape((1,) * x.ndim)),
    "softmax": lambda x, t, a: jax.nn.softmax(_rows(x), axis=-1).reshape(x.shape),
    "concatenate": lambda x, t, a: jnp.concatenate([jnp.sin(_rows(x)), _rows(x)])[: _rows(x).shape[0]].reshape(x.shape),
    "fori_loop": lambda x, t, a: jax.lax.fori_loop(0, 2, lambda i, c: jnp.sin(c + 0.1 * i), x),
    "scan": _last_of_scan,
    "cond": _clocked,
    "custom_jvp": lambda x, t, a: _own_derivative(x),
    "jit": lambda x, t, a: jax.jit(jnp.cos)(x * a.astype(x.dtype)),
    "remat": lambda x, t, a: jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)))(x),
    "vmap": lambda x, t, a: jax.vmap(jnp.tanh)(_rows(x)).reshape(x.shape),
    "literal": lambda x, t, a: jnp.full_like(x, 0.3),
    "stop_gradient": lambda x, t, a: x * jnp.tanh(jax.lax.stop_gradient(a).astype(x.dtype)),
    "inner_grad": lambda x, t, a: jax.grad(lambda x: jnp.sum(jnp.cos(x)))(x),
}

SMOOTH |= {f"{name}_in_{place}": WITHIN[place](SMOOTH[name]) for name in ("shifted", "cumsum") for place in WITHIN}

ROUGH = {
    "clip": lambda x, t, a: jnp.clip(x, -0.31, 0.42),
    "where": lambda x, t, a: jnp.where(x > 0.23, jnp.sin(x), -0.5 * x),
    "abs": lambda x, t, a: jnp.abs(x - 0.17),
    "maximum": lambda x, t, a: jnp.maximum(x, a.astype(x.dtype)),
    "relu": lambda x, t, a: jax.nn.relu(x - 0.13),
    "cummax": lambda x, t, a: 0.1 * jax.lax.cummax(_rows(x), axis=0).reshape(x.shape),
    "max": lambda x, t, a: jnp.sin(x - jnp.max(x)),
    "index_by_time": _at_time,
    "argmax": lambda x, t, a: x - 0.2 * x.reshape(-1)[jnp.argmax(x)],
    "floor": lambda x, t, a: jnp.sin(x) + 0.1 * jnp.floor(3 * x + 0.37),
    "sign": lambda x, t, a: -0.2 * jnp.sign(x - 0.111),
    "sort": lambda x, t, a: 0.5 * jnp.sort(_rows(x), axis=0).reshape(x.shape),
    "cond_on_state": lambda x, t, a: jax.lax.cond(jnp.sum(x) > 0.29, jnp.sin, lambda x: -x, x),
    "while": lambda x, t, a: jax.lax.stop_gradient(
        jax.lax.while_loop(lambda c: jnp.sum(c * c) > 0.2, lambda c: 0.5 * c, jax.lax.stop_gradient(x))
    ),
}

REVERSE_ONLY = {"custom_vjp": lambda x, t, a: _own_transpose(x)}

ANALYTIC = (
    *("sin", "power_of_two", "matrix", "dot", "roll", "shifted", "gather", "mean", "concatenate", "fori_loop"),
    *("cond", "custom_jvp", "jit", "remat", "literal", "scan", "cumsum", "conjugate"),
)
"""What complex numbers have, too."""

ALL = SMOOTH | ROUGH | REVERSE_ONLY


def field(names, terms=0.4):
    """The sum of a decay, the operations of these names on each leaf, and what couples the leaves."""

    def f(t, y, args):
        a = args["a"]
        # means: by its sum a state of many numbers would be stiff, and methods of different steps would not agree
        total = sum(jnp.tanh(2 * jnp.mean(leaf)) for leaf in jax.tree.leaves(y))

        def of_leaf(x):
            made = sum(ALL[name](x, t, a) for name in names)
            shared = total if jnp.iscomplexobj(x) else jnp.real(total)
            return -a.astype(x.dtype) * x + terms * made + 0.1 * shared.astype(x.dtype)

        return jax.tree.map(of_leaf, y)

    return f
