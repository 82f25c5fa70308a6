# %% [markdown]
# # Custom derivative rules: custom_jvp and custom_vjp
#
# JAX differentiates a program by differentiating its steps. Sometimes this is impossible (a `while_loop` has no
# reverse mode), wasteful (the iterations of a root finder), or inaccurate. If you know a formula for the derivative,
# define it: `jax.custom_jvp` takes a forward-mode rule, from which JAX also derives reverse mode; `jax.custom_vjp`
# takes a reverse-mode rule only.
#
# ## Example: Kepler's equation
#
# The position of a planet at a given time follows from $M = E - e \sin E$: the mean anomaly $M$ grows with time, and
# the eccentric anomaly $E$ gives the position. There is no formula for $E$, but Newton's method finds it:

# %%
import jax
import jax.numpy as jnp
import numpy as np

import sciml


def newton(M, e):
    def improve(carry):
        E, _ = carry
        change = (E - e * jnp.sin(E) - M) / (1 - e * jnp.cos(E))
        return E - change, change

    return jax.lax.while_loop(
        lambda carry: jnp.abs(carry[1]) > 1e-6, improve, (M + e, jnp.ones_like(M))
    )[0]


try:
    jax.grad(newton)(1.0, 0.3)
except ValueError as error:
    print(str(error)[:95])
else:
    raise AssertionError("reverse mode through a while loop")

# %% [markdown]
# ## The implicit function theorem
#
# At the root, $E - e \sin E - M = 0$ for any iteration that finds it. Differentiation gives the rule $(1 - e \cos
# E)\, \mathrm{d}E = \mathrm{d}M + \sin E\, \mathrm{d}e$:

# %%
anomaly = jax.custom_jvp(newton)


@anomaly.defjvp
def _(primals, tangents):
    M, e = primals
    dM, de = tangents
    E = anomaly(M, e)
    return E, (dM + jnp.sin(E) * de) / (1 - e * jnp.cos(E))


by_M, by_e = jax.grad(anomaly, argnums=(0, 1))(1.0, 0.3)
E = newton(1.0, 0.3)
print(f"dE/dM = {by_M:.5f}, exact {1 / (1 - 0.3 * jnp.cos(E)):.5f}; dE/de = {by_e:.5f}")

# %% [markdown]
# All of JAX supports such a rule: `vmap`, `jit`, and second derivatives, because the rule itself is differentiable:

# %%
Ms = jnp.linspace(0.1, 6.0, 60)
slopes = jax.vmap(jax.grad(anomaly), in_axes=(0, None))(Ms, 0.3)
curvature = jax.grad(jax.grad(anomaly))(1.0, 0.3)
assert jnp.allclose(curvature, -0.3 * jnp.sin(E) / (1 - 0.3 * jnp.cos(E)) ** 3, rtol=1e-4)

# %% [markdown]
# ## custom_vjp: gradient clipping
#
# A `custom_vjp` consists of two functions. The forward function returns the result and the values that the backward
# function needs; the backward function maps the cotangent of the result to the cotangents of the arguments. This
# example changes a gradient on purpose: the gradient of a long chaotic run is astronomically large, and gradient
# clipping limits the cotangent in each step:


# %%
@jax.custom_vjp
def clip_cotangent(y):
    return y


def forwards(y):
    return y, None


def backwards(_, cotangent):
    return (jnp.clip(cotangent, -1.0, 1.0),)


clip_cotangent.defvjp(forwards, backwards)
lorenz = sciml.models.Lorenz63()


def end(y, clip):
    def step(y, _):
        return clip(y + 0.01 * lorenz(0.0, y, None)), None

    return jax.lax.scan(step, y, None, length=2000)[0][0]


y0 = jnp.array([1.0, 1.0, 1.0])
plain = jax.grad(end)(y0, lambda y: y)
clipped = jax.grad(end)(y0, clip_cotangent)
print("plain", plain, "clipped", clipped)
assert jnp.max(jnp.abs(clipped)) < 10 < jnp.max(jnp.abs(plain))

# %% [markdown]
# The clipped gradient is no longer the derivative of any function: JAX does not check rules. Forward mode raises an
# error:

# %%
try:
    jax.jvp(lambda y: end(y, clip_cotangent), (y0,), (y0,))
except TypeError as error:
    print(str(error)[:80])
else:
    raise AssertionError("jvp of a custom_vjp")

# %% [markdown]
# ## Exercise
#
# $\sqrt{x^2 + y^2}$ has no derivative at the origin, where JAX returns NaN. One remedy is a softened distance.
# Another is a rule that defines the derivative at the origin as 0. Write it.


# %% Answer
@jax.custom_jvp
def distance(x, y):
    return jnp.sqrt(x**2 + y**2)


@distance.defjvp
def _(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    r = distance(x, y)
    safe = jnp.where(r > 0, r, 1.0)
    return r, (x * dx + y * dy) / safe


assert jnp.isnan(jax.grad(lambda x: jnp.sqrt(x**2 + 0.0**2))(0.0))
assert jax.grad(distance)(0.0, 0.0) == 0.0 and jnp.allclose(jax.grad(distance)(3.0, 4.0), 0.6)

# %% [markdown]
# ## Use in sciml
#
# Every adjoint except `Direct` is such a rule, a `custom_vjp` with its derivation above it in the source
# ([adjoints](../guides/adjoints.md)), and `sciml.steady_state` uses the implicit function theorem. `sciml.solve`
# respects custom rules within a vector field, in gradients and in ensembles. In this example another planet on a
# given orbit pulls a planet:


# %%
def pulled(t, y, e):
    E = anomaly(t, e)
    other = jnp.stack([jnp.cos(E) - e, jnp.sqrt(1 - e**2) * jnp.sin(E)])
    gap = y[:2] - other
    near, star = 0.1 + jnp.sum(gap**2), jnp.sum(y[:2] ** 2)
    return jnp.concatenate([y[2:], -y[:2] / star**1.5 - 0.01 * gap / near**1.5])


def reached(e):
    y0 = jnp.array([2.0, 0.0, 0.0, 0.7])
    return sciml.solve(pulled, y0, t0=0.0, t1=3.0, dt=0.05, args=e).ys[-1, 0]


by_rule = jax.jit(jax.grad(reached))(0.3)
run = jax.jit(reached)
by_differences = (run(0.4) - run(0.2)) / 0.2
print(f"by the rule {by_rule:.4f}, by differences {by_differences:.4f}")
assert jnp.allclose(by_rule, by_differences, rtol=0.1)


# %%
def in_float64(M):
    E = M.copy()
    for _ in range(50):
        E = M + 0.3 * np.sin(E)  # a fixed-point iteration: another way to the same root
    return E


M64 = np.asarray(Ms, np.float64)
differences = (in_float64(M64 + 1e-4) - in_float64(M64 - 1e-4)) / 2e-4
error = float(np.max(np.abs(slopes - differences)))
assert error < 1e-5
print(
    f"figure of merit: {error:.1e} < 1e-05 (slope of Kepler's equation, by the rule and by differences in float64)"
)
