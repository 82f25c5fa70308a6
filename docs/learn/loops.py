# %% [markdown]
# # Loops and branches
#
# A Python `for` is unrolled when JAX traces it, and a Python `if` on a traced value is an error. JAX has its own:
# `scan`, `fori_loop` and `while_loop`, `cond` and `switch`. A time integrator is nothing but such a loop, and which
# one you take decides whether it has a gradient.
#
# ## Which loop
#
# | | number of turns | keeps a row of every turn | reverse mode |
# |---|---|---|---|
# | `lax.scan` | known when traced | yes | yes |
# | `lax.fori_loop` with Python numbers as bounds | known when traced | no | yes: it becomes a scan |
# | `lax.fori_loop` with traced bounds | known at run time | no | no |
# | `lax.while_loop` | until a condition fails | no | no |
#
# The reason for the last column is memory. Reverse mode runs the turns backwards and needs what each of them
# computed. For a known number of turns JAX makes an array with a row for each. For an unknown number it does not know
# how large that array has to be. Forward mode carries tangents along, keeps nothing, and goes through all four.
#
# A ball falls from a height, by three of them:

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
    """How long it takes to the ground."""
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
# The while loop has a derivative in forward mode, and it is right: $\mathrm{d}t / \mathrm{d}h = 1/v$. But all of it
# comes from the last line, which goes back from the end of the last step to where the height was zero. A loop's
# *length* has no derivative: without that line it would be 0.
#
# ## cond and switch
#
# `lax.cond` runs one of two functions, `lax.switch` one of many, chosen by a number. The same ball on three planets:

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
# Under `vmap` members choose differently, so JAX runs *both* branches for all and selects: the `cond` above became a
# `select_n`, with the sine and the cosine beside it. A branch is cheaper than its neighbour only outside of `vmap`.
# And a NaN in the branch that was not taken comes back in the gradient: see [Sharp
# bits](../guides/sharp_bits.md#nan-in-where).
#
# ## Exercise
#
# Write `by_fori` with the number of turns as an argument. Which of `jax.grad(by_fori)(h, 100)`,
# `jax.jit(jax.grad(by_fori))(h, 100)` and the latter with `static_argnums=1` work, and why?

# %% Answer
# The first and the third: there `turns` is a Python number when JAX traces, and the loop a scan. In the second it is
# traced, the loop is a `while`, and reverse mode is refused.
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
# ## Where sciml uses it
#
# With `dt` the number of steps is known, with error control it is not: the loop of `sciml.solve` is a `while`, and
# yet `jax.grad` goes through it, because the adjoints bring a reverse mode of their own, which records steps in a
# bounded table ([Adjoints](../guides/adjoints.md)). `sciml.checkpointed_scan` is a scan with a choice of memory.
# Where a time is what you want, as that of the fall, an [event](../guides/events.md) finds it, and it has a gradient:

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
