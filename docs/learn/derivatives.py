# %% [markdown]
# # Derivatives: grad, jvp, vjp, Hessians
#
# A simulation maps inputs to outputs, $y = F(x)$. Its Jacobian $J = \partial F / \partial x$ has a row per output and
# a column per input, and the whole matrix is rarely needed. JAX multiplies it with vectors from either side
# (automatic differentiation), at the cost of a few runs:
#
# | | Computes | Cost of one call | Answers |
# |---|---|---|---|
# | `jax.jvp`, forward mode | $J v$ | about two runs, no memory | how do outputs change along this direction? |
# | `jax.vjp`, reverse mode | $w^T J$ | a few runs, memory of all steps | on which inputs do these outputs depend? |
# | `jax.grad` | `vjp` of one number | the same | |
# | `jax.jacfwd` | $J$, by columns | one `jvp` per input | few inputs |
# | `jax.jacrev` | $J$, by rows | one `vjp` per output | few outputs |
# | `jax.hessian` | $\partial^2 F$ of one number | `jacfwd` of `jacrev` | curvature |
#
# ## Example: a throw with drag
#
# The function computes the position of a ball one second after it was thrown with velocity `v`:

# %%
import jax
import jax.numpy as jnp

import sciml


def ball(t, y, drag):
    velocity = y[2:]
    speed = jnp.sqrt(jnp.sum(velocity**2))
    return jnp.concatenate([velocity, jnp.array([0.0, -9.81]) - drag * speed * velocity])


def place(v, drag=0.05):
    def step(y, _):
        return y + 0.01 * ball(0.0, y + 0.005 * ball(0.0, y, drag), drag), None

    start = jnp.concatenate([jnp.zeros(2), v])
    return jax.lax.scan(step, start, None, length=100)[0][:2]


v = jnp.array([8.0, 9.0])
print("it is at", place(v))

# %% [markdown]
# ## Forward and reverse agree
#
# `jvp` propagates a direction $u$ forwards, `vjp` propagates weights $w$ backwards. Both use the same Jacobian, so
# $w^T (J u) = (w^T J) u$:

# %%
u, w = jnp.array([1.0, -2.0]), jnp.array([0.3, 0.7])
_, pushed = jax.jvp(place, (v,), (u,))
_, pull = jax.vjp(place, v)
(pulled,) = pull(w)
print(f"{w @ pushed:.6f} = {pulled @ u:.6f}")
assert jnp.allclose(w @ pushed, pulled @ u, rtol=1e-4)

# %% [markdown]
# This identity is the best test of a custom derivative rule. Finite differences are another test, but in float32 they
# have three digits at best:

# %%
difference = (place(v + 1e-2 * u) - place(v - 1e-2 * u)) / 2e-2
print("by jvp", pushed, "by differences", difference)

# %% [markdown]
# ## Newton's method
#
# Find the velocity that hits a target: two equations $F(v) = $ target with two unknowns. With the Jacobian, each
# iteration doubles the number of digits:

# %%
target = jnp.array([6.0, 3.0])


@jax.jit
def improve(v):
    return v - jnp.linalg.solve(jax.jacfwd(place)(v), place(v) - target)


for _ in range(5):
    print(f"misses by {jnp.linalg.norm(place(v) - target):.1e}")
    v = improve(v)
miss = float(jnp.linalg.norm(place(v) - target))

# %% [markdown]
# ## value_and_grad, argnums and has_aux
#
# `jax.value_and_grad` returns the value and the gradient at the cost of the gradient. `argnums=` selects the
# arguments, and `has_aux=True` allows the function to return additional values, such as a status:


# %%
def cost(v, drag):
    end = place(v, drag)
    return jnp.sum((end - target) ** 2), end


(value, end), (by_v, by_drag) = jax.value_and_grad(cost, argnums=(0, 1), has_aux=True)(
    v + 0.5, 0.05
)
print(f"cost {value:.4f} at {end}, slopes {by_v} and {by_drag:.3f}")

# %% [markdown]
# ## stop_gradient
#
# `jax.lax.stop_gradient(x)` has the value of `x` and the derivative 0. Use it for a part of a computation that must
# not contribute to a derivative: a weight computed from the data, the scale of a residual, a target that is the
# model's own prediction. In a simulation it truncates a gradient in time:


# %%
def relative(v):
    end = place(v)
    return jnp.sum((end - target) ** 2) / jax.lax.stop_gradient(jnp.sum(end**2))


scale = jnp.sum(place(v + 0.5) ** 2)
by_hand = jax.grad(lambda v: jnp.sum((place(v) - target) ** 2))(v + 0.5) / scale
print(jax.grad(relative)(v + 0.5), by_hand)
assert jnp.allclose(jax.grad(relative)(v + 0.5), by_hand, rtol=1e-4)

# %% [markdown]
# ## Exercise
#
# At the minimum of a sum of squares with zero residuals, the Hessian is $2 J^T J$. Check it. Then compute the product
# of the Hessian with `u` without the matrix.


# %% Answer
def misfit(v):
    return cost(v, 0.05)[0]


hessian = jax.hessian(misfit)(v)
jacobian = jax.jacrev(place)(v)
print(hessian)
assert jnp.allclose(hessian, 2 * jacobian.T @ jacobian, rtol=1e-2, atol=1e-3)

# forward over reverse: a jvp of the gradient
_, product = jax.jvp(jax.grad(misfit), (v,), (u,))
assert jnp.allclose(product, hessian @ u, rtol=1e-3)

# %% [markdown]
# ## Use in sciml
#
# The argument `adjoint=` of `solve` selects the method of differentiation: `Checkpointed()`, the default, is for
# reverse mode, `Direct()` allows forward mode, and `Forward()` supports both for few parameters
# ([adjoints](../guides/adjoints.md)). `sciml.fit` uses `jvp`s for least squares; `sciml.verify.check_gradient`
# compares any gradient with finite differences. `jax.jacfwd` of a solve:


# %%
def by_sciml(v):
    y0 = jnp.concatenate([jnp.zeros(2), v])
    sol = sciml.solve(ball, y0, t0=0.0, t1=1.0, dt=0.01, args=0.05, adjoint=sciml.adjoints.Direct())
    return sol.ys[-1, :2]


assert jnp.allclose(jax.jacfwd(by_sciml)(v), jacobian, rtol=1e-3, atol=1e-4)
assert miss < 1e-5
print(f"figure of merit: {miss:.1e} < 1e-05 (metres off the target after five iterations)")
