"""The stiff problems of the test set by every stiff method: what they end at is published."""

import jax.numpy as jnp
import numpy as np
import pytest
from diffrax import Kvaerno5

import sciml
from sciml.solvers import BDF, Radau5, Rodas5P, Rosenbrock23, Switching
from sciml.verify.problems._references import chemical_akzo_nobel, hires, oregonator, pollution, robertson, van_der_pol

pytestmark = pytest.mark.x64

# with the absolute over the relative tolerance
PROBLEMS = {
    robertson: 1e-12,
    hires: 1e-3,
    oregonator: 1e-3,
    van_der_pol: 1e-3,
    pollution: 1e-10,
    chemical_akzo_nobel: 1e-4,
}
# with a relative tolerance, and the largest error of a component
METHODS = {
    Rodas5P: (1e-8, 1e-7),
    Radau5: (1e-6, 1e-6),
    BDF: (1e-8, 1e-5),
    Kvaerno5: (1e-8, 1e-5),
    Switching: (1e-7, 1e-6),
    Rosenbrock23: (1e-5, 1e-2),
}


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make.__name__)
def test_end_values(make, method):
    problem, (rtol, most) = make(), METHODS[method]
    sol = sciml.solve(
        problem.model, problem.y0, t0=problem.t0, t1=problem.t1, rtol=rtol, atol=PROBLEMS[make] * rtol, solver=method()
    )
    assert problem.error(sol.ys[-1], componentwise=True) < most


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
def test_e5(method):
    """At 1e7, where the fourth concentration, 8e-20, is what is left of a difference: of that only the sign counts."""

    def e5(t, y, args):
        first, second = 7.89e-10 * y[0], 1.1e7 * y[0] * y[2]
        third, fourth = 1.13e9 * y[1] * y[2], 1.13e3 * y[3]
        return jnp.stack([-first - second, first - third, (first - third) - (second - fourth), second - fourth])

    rtol, most = METHODS[method]
    y0 = jnp.array([1.76e-3, 0.0, 0.0, 0.0])
    options = dict(rtol=rtol, atol=1e-16 * rtol, dt0=1e-3, solver=method())
    end = sciml.solve(e5, y0, t0=0.0, t1=1e7, **options).ys[-1]
    np.testing.assert_allclose(end[:3], [4.715033363e-10, 1.818889586081e-14, 1.818881237678e-14], rtol=most)
    assert 0 < end[3] < 1e-18
