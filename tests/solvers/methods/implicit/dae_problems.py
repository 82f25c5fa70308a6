"""Differential-algebraic equations with published end values, and one with an exact solution.

F. Mazzia, C. Magherini, Test Set for Initial Value Problem Solvers, release 2.4, Bari (2008): the transistor amplifier,
the slider crank with a flexible rod (B. Simeon) and Fekete's problem.
"""

import jax.numpy as jnp
import numpy as np


def amplifier(t, y, rate, voltage):
    """Two transistors; the matrix of the capacities has rank five."""

    def current(u):
        return 1e-6 * (jnp.exp(u / 0.026) - 1)

    r, r0, c = 9000.0, 1000.0, jnp.arange(1.0, 6.0, dtype=y.dtype) * 1e-6
    first, second = current(y[1] - y[2]), current(y[4] - y[5])
    between = [c[0] * (rate[0] - rate[1]), c[2] * (rate[3] - rate[4]), c[4] * (rate[6] - rate[7])]
    return jnp.stack(
        [
            between[0] + (y[0] - 0.1 * jnp.sin(200 * jnp.pi * t).astype(y.dtype)) / r0,
            -between[0] + y[1] / r + (y[1] - voltage) / r + 0.01 * first,
            c[1] * rate[2] + y[2] / r - first,
            between[1] + (y[3] - voltage) / r + 0.99 * first,
            -between[1] + y[4] / r + (y[4] - voltage) / r + 0.01 * second,
            c[3] * rate[5] + y[5] / r - second,
            between[2] + (y[6] - voltage) / r + 0.99 * second,
            -between[2] + y[7] / r,
        ]
    )


def amplifier_start(voltage=6.0):
    """The state at rest."""
    return voltage * jnp.array([0.0, 0.5, 0.5, 1.0, 0.5, 0.5, 1.0, 0.0])


AMPLIFIER_END = [
    -0.5562145012262709e-2,
    3.006522471903042,
    2.849958788608128,
    2.926422536206241,
    2.704617865010554,
    2.761837778393145,
    4.770927631616772,
    1.236995868091548,
]
"""At t = 0.2."""


def slider_crank(t, y, rate, omega):
    """Seven positions, velocities and accelerations, and three multipliers; the velocities are constrained."""
    x, v, w, multipliers = y["x"], y["v"], y["w"], y["multipliers"]
    density, width, length1, length2 = 7870.0, 0.008, 0.15, 0.3
    mass2, pi = 0.151104, 3.1415927
    facm, fack, facb = density * width**2 * length2, 0.2e12 * width**2 / length2, width**2 * length2
    of_mass = facm * np.array([[0.5, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 8, 1], [0, 0, 1, 2]])
    of_stiffness = fack * np.array(
        [
            [pi**4 / 24 * (width / length2) ** 2, 0, 0, 0],
            [0, pi**4 * 2 / 3 * (width / length2) ** 2, 0, 0],
            [0, 0, 16 / 3, -8 / 3],
            [0, 0, -8 / 3, 7 / 3],
        ]
    )
    skew = np.zeros((4, 4))
    skew[0, 2:], skew[1, 3] = (-16 / pi**3, 8 / pi**3 - 1 / pi), 0.5 / pi
    skew = facb * (skew - skew.T)
    c1, c2 = facb * np.array([0, 0, 2 / 3, 1 / 6]), facb * np.array([2 / pi, 0, 0, 0])
    c12, c21 = length2 * facb * np.array([0, 0, 1 / 3, 1 / 6]), length2 * facb * np.array([1 / pi, -0.5 / pi, 0, 0])
    of_mass, of_stiffness, skew, c1, c2, c12, c21 = (
        jnp.asarray(a, x.dtype) for a in (of_mass, of_stiffness, skew, c1, c2, c12, c21)
    )
    q, qd = x[3:], v[3:]
    sin, cos, s12, c12_ = jnp.sin(x[:2]), jnp.cos(x[:2]), jnp.sin(x[0] - x[1]), jnp.cos(x[0] - x[1])
    rows = jnp.zeros((7, 7), x.dtype).at[3:, 3:].set(of_mass)
    rows = rows.at[0, 0].set(0.002727 + mass2 * length1**2).at[2, 2].set(0.075552)
    rows = rows.at[1, 1].set(0.0045339259 + q @ of_mass @ q + 2 * density * (c12 @ q))
    a12 = 0.5 * length1 * length2 * mass2 * c12_ + density * length1 * (s12 * (c2 @ q) + c12_ * (c1 @ q))
    a1, a2 = density * length1 * (-s12 * c1 + c12_ * c2), density * (c21 + q @ skew)
    rows = rows.at[0, 1].set(a12).at[1, 0].set(a12)
    rows = rows.at[0, 3:].set(a1).at[3:, 0].set(a1).at[1, 3:].set(a2).at[3:, 1].set(a2)
    zero, one = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
    long = length2 + q[3]
    constraints = jnp.stack(
        [
            jnp.stack([length1 * cos[0], long * cos[1], zero, zero, zero, zero, sin[1]]),
            jnp.stack([length1 * sin[0], long * sin[1], one, zero, zero, zero, -cos[1]]),
            jnp.stack([one, zero, zero, zero, zero, zero, zero]),
        ]
    )
    f1 = -0.5 * length1 * length2 * mass2 * v[1] ** 2 * s12
    f1 = f1 + density * length1 * v[1] ** 2 * (-s12 * (c1 @ q) + c12_ * (c2 @ q))
    f1 = f1 - 2 * density * length1 * v[1] * (c12_ * (c1 @ qd) + s12 * (c2 @ qd))
    f2 = 0.5 * length1 * length2 * mass2 * v[0] ** 2 * s12
    f2 = f2 + density * length1 * v[0] ** 2 * (s12 * (c1 @ q) - c12_ * (c2 @ q))
    f2 = f2 - 2 * density * v[1] * (c12 @ qd) - 2 * v[1] * (qd @ of_mass @ q) - density * (qd @ skew @ qd)
    f = (
        v[1] ** 2 * (of_mass @ q)
        - of_stiffness @ q
        + density * (v[1] ** 2 * c12 + length1 * v[0] ** 2 * (c12_ * c1 + s12 * c2) + 2 * v[1] * (skew @ qd))
    )
    forces = jnp.concatenate([jnp.stack([f1, f2, zero]), f])
    return {
        "x": rate["x"] - v,
        "v": rate["v"] - w,
        "w": rows @ w - forces + multipliers @ constraints,
        "multipliers": constraints @ v - jnp.stack([zero, zero, omega]),
    }


SLIDER_CRANK_INDEX = {"x": 1, "v": 1, "w": 2, "multipliers": 2}


def slider_crank_start():
    """Near the smooth motion; the accelerations and the multipliers are to be found."""
    x = [0.0, 0.0, 0.450016933, 0.0, 0.0, 0.103339863e-4, 0.169327969e-4]
    v = [0.15e3, -0.749957670e2, -0.268938672e-5, 0.444896105, 0.463434311e-2, -0.178591076e-5, -0.268938672e-5]
    return {"x": jnp.array(x), "v": jnp.array(v), "w": jnp.zeros(7), "multipliers": jnp.zeros(3)}


SLIDER_CRANK_FOUND = {
    "w": [
        0.0,
        -1.344541576008661e-3,
        -5.062194923138079e3,
        -6.833142732779555e-5,
        1.449382650173157e-8,
        -4.268463211410861,
        2.098334687947376e-1,
    ],
    "multipliers": [-6.397251492537153e-8, 3.824589508329281e2, -4.376060460948886e-9],
}
"""The consistent values at the start."""

SLIDER_CRANK_END = {
    "x": [
        15.0,
        -0.3311734987910881,
        0.1697373326718410,
        1.893192460247178e-4,
        2.375751865617931e-5,
        -5.323907988763734e-6,
        -8.363283141616840e-6,
    ],
    "v": [
        150.0,
        60.25346682645789,
        -8.753116989887888,
        -3.005536801092212e-2,
        -5.500488291932075e-3,
        4.978243404809343e-4,
        1.104933470696396e-3,
    ],
    "multipliers": [-62.32893262533717, -163.7910131687472, 25.29853213732781],
}
"""At t = 0.1."""


def fekete(t, y, rate, damping):
    """Twenty points on a sphere that repel one another; both the positions and the velocities are constrained."""
    p, q, force, moved = y["p"], y["q"], y["force"], y["moved"]
    apart = p[:, None] - p[None]
    size = jnp.sum(apart**2, axis=2) + jnp.eye(p.shape[0], dtype=p.dtype)
    repelled = jnp.sum(apart / size[:, :, None], axis=1)
    return {
        "p": rate["p"] - q - 2 * moved[:, None] * p,
        "q": rate["q"] + damping * q - 2 * force[:, None] * p - repelled,
        "force": jnp.sum(p**2, axis=1) - 1,
        "moved": 2 * jnp.sum(p * q, axis=1),
    }


FEKETE_INDEX = {"p": 1, "q": 1, "force": 2, "moved": 2}


def fekete_start():
    """Points on four circles, at rest; the forces are to be found."""
    pi, points = np.pi, []
    for count, turned, beta in ((3, 13, 3 / 8), (7, 29, 1 / 8), (6, 7, -2 / 15), (4, 17, -3 / 10)):
        for i in range(1, count + 1):
            number = i - 1 if count == 4 else i
            a, b = 2 * pi * number / count + pi / turned, beta * pi
            points.append([np.cos(a) * np.cos(b), np.sin(a) * np.cos(b), np.sin(b)])
    return {"p": jnp.array(points), "q": jnp.zeros((20, 3)), "force": jnp.zeros(20), "moved": jnp.zeros(20)}


FEKETE_END = [
    [-0.4070263380333202, 0.3463758772791802, 0.8451942450030429],
    [0.7752934752521549e-1, -0.2628662719972299, 0.9617122871829146],
    [0.7100577833343567, 0.1212948055586120, 0.6936177005172217],
    [0.2348267744557627, 0.7449277976923311, 0.6244509285956391],
    [-0.4341114738782885, 0.8785430442262876, 0.1992720444237660],
    [-0.9515059600312596, 0.2203508762787005, 0.2146669498274008],
    [-0.6385191643609878, -0.4310833259390688, 0.6375425027722121],
    [-0.1464175087914336, -0.9380871635228862, 0.3139337298744690],
    [0.5666974065069942, -0.6739221885076542, 0.4740073135462156],
    [0.9843259538440293, -0.1696995357819996, -0.4800504290609090e-1],
]
"""The first ten positions at t = 1000."""


def jay(t, y, rate, scale):
    """Of index three, with the solution exp(2 t), exp(-t) twice and exp(t), for `scale` one."""
    (y1, y2), (z1, z2), u = y["y"], y["z"], y["u"]
    return {
        "y": rate["y"] - jnp.stack([2 * y1 * y2 * z1 * z2, -y1 * y2 * z2**2]),
        "z": rate["z"] - jnp.stack([(y1 * y2 + z1 * z2) * u, -y1 * y2**2 * z2**2 * u]),
        "u": y1 * y2**2 - scale,
    }


JAY_INDEX = {"y": 1, "z": 2, "u": 3}


def jay_solution(t):
    """The exact solution."""
    pair = jnp.exp(jnp.array([2.0, -1.0]) * t)
    return {"y": pair, "z": pair, "u": jnp.exp(t)}


def pendulum(t, y, rate, length):
    """In Cartesian coordinates, of index three."""
    (q, v, tension), (dq, dv, _) = y, rate
    return dq - v, dv + tension * q - jnp.array([0.0, -9.81], q.dtype), (q @ q - length**2) / 2
