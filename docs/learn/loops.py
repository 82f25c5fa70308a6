# %% [markdown]
# # Loops and branches
#
# JAX unrolls a Python `for` loop during tracing, and a Python `if` on a traced value raises an error. Use JAX's
# control flow instead: `scan`, `fori_loop`, `while_loop`, `cond` and `switch`. A time integrator is such a loop, and
# its kind determines whether it supports reverse mode.
#
# ## Which loop to use
#
# | | Number of iterations | Returns a row per iteration | Reverse mode |
# |---|---|---|---|
# | `lax.scan` | known during tracing | yes | yes |
# | `lax.fori_loop` with Python numbers as bounds | known during tracing | no | yes: it becomes a scan |
# | `lax.fori_loop` with traced bounds | known at run time | no | no |
# | `lax.while_loop` | until a condition fails | no | no |
#
# The reason for the last column is memory. Reverse mode runs the iterations backwards and needs the intermediate
# values of each. For a known number of iterations JAX allocates an array with a row for each; for an unknown number
# it cannot know the size. Forward mode carries tangents along, stores nothing, and works for all four.
#
# A ball falls from a height, computed with three of them:

# %%
import diffrax
import jax
import jax.numpy as jnp

import sciml


def fall(ball, g=9.81, dt=1e-3):
    height, speed = ball
    return height + dt * speed - 0.5 * dt**2 * g, speed - dt * g


def by_scan(height):
    return jax.lax.scan(lambda ball, _: (fall(ball), None), (height, 0.0), None, length=100)[0][0]


def by_fori(height, turns=100):
    return jax.lax.fori_loop(0, turns, lambda _, ball: fall(ball), (height, 0.0))[0]


def by_while(height):
    """The time until it hits the ground."""
    ball, time = (height, 0.0), 0.0
    (height, speed), time = jax.lax.while_loop(
        lambda c: c[0][0] > 0, lambda c: (fall(c[0]), c[1] + 1e-3), (ball, time)
    )
    return time + height / -speed  # back to where it was zero


h = jnp.array(2.0)
print(by_scan(h), by_fori(h), by_while(h))
for name, fn in {"scan": by_scan, "fori": by_fori, "while": by_while}.items():
    forward = jax.jvp(fn, (h,), (1.0,))[1]
    try:
        print(f"{name:6} forward {forward:.3f}, reverse {jax.grad(fn)(h):.3f}")
    except ValueError as refused:
        print(f"{name:6} forward {forward:.3f}, reverse: {str(refused)[:60]}...")

# %% [markdown]
# The while loop has a derivative in forward mode, and it is right: $\mathrm{d}t / \mathrm{d}h = 1/v$. It comes
# entirely from the last line, which interpolates back to the time when the height was zero. The *number of
# iterations* has no derivative: without that line the result would be 0.
#
# ## Branches: cond and switch
#
# `lax.cond` runs one of two functions, `lax.switch` one of several, selected by a number. The same ball on three
# planets:

# %%
GRAVITY = (lambda: 9.81, lambda: 3.71, lambda: 1.62)  # Earth, Mars, Moon


def drop_on(planet, height):
    g = jax.lax.switch(planet, GRAVITY)
    return jnp.sqrt(2 * height / g)


print([f"{drop_on(planet, h):.3f} s" for planet in range(3)])
in_vmap = jax.make_jaxpr(jax.vmap(lambda p: jax.lax.cond(p > 0, jnp.sin, jnp.cos, 1.0)))(
    jnp.arange(3)
)
print({"cond", "select_n", "sin", "cos"} & {eqn.primitive.name for eqn in in_vmap.jaxpr.eqns})

# %% [markdown]
# Under `vmap` members select differently, so JAX runs *both* branches for all members: the `cond` above became a
# `select_n` of the sine and the cosine. A cheap branch therefore saves time only outside of `vmap`. A NaN in the
# branch that was not selected can reappear in the gradient: see [NaN in where](../guides/sharp_bits.md#nan-in-where).
#
# ## Exercise
#
# Write `by_fori` with the number of iterations as an argument. Which of `jax.grad(by_fori)(h, 100)`,
# `jax.jit(jax.grad(by_fori))(h, 100)` and the latter with `static_argnums=1` work, and why?

# %% Answer
# The first and the third: there `turns` is a Python number during tracing, and the loop a scan. In the second it is
# traced, the loop is a `while`, and reverse mode raises an error.
works = []
calls = (
    jax.grad(by_fori),
    jax.jit(jax.grad(by_fori)),
    jax.jit(jax.grad(by_fori), static_argnums=1),
)
for call in calls:
    try:
        call(h, 100)
        works.append(True)
    except ValueError:
        works.append(False)
print(works)
assert works == [True, False, True]

# %% [markdown]
# ## Use in sciml
#
# With `dt` the number of steps is known. With error control it is not: the loop of `sciml.solve` is a `while`.
# `jax.grad` works nevertheless, because the adjoints define a custom reverse mode that records steps in a bounded
# table ([adjoints](../guides/adjoints.md)). `sciml.checkpointed_scan` is a scan with a choice of memory. To compute a
# time, such as the time of the fall, use an [event](../guides/events.md), which has a gradient:

# %%
ground = sciml.Event(lambda t, y, args: y[0], direction=-1)


def landing(height):
    ball = jnp.stack([height, 0.0 * height])
    options = dict(t0=0.0, t1=2.0, args=9.81, solver=diffrax.Heun(), events=ground)
    return sciml.solve(lambda t, y, g: jnp.stack([y[1], -g]), ball, **options).t_reached


time, slope = jax.jit(jax.value_and_grad(landing))(h)
print(
    f"time {time:.5f}, slope by reverse mode {slope:.5f}, exact {1 / (2 * 9.81 * 2.0) ** 0.5:.5f}"
)

# %%
exact = (2 * 2.0 / 9.81) ** 0.5
error = abs(float(by_while(h)) - exact)
assert error < 1e-4
print(
    f"figure of merit: {error:.1e} < 1e-04 (time of the fall by a while loop, and by the formula)"
)
