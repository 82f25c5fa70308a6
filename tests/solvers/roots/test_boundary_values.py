"""Boundary value problems: exact solutions, order, derivatives, and SciPy's solver as a peer."""

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest
import scipy.integrate
import scipy.optimize

import sciml


def bratu(t, y, args):
    return jnp.stack([y[1], -args * jnp.exp(y[0])])


def both_zero(start, end, args):
    return jnp.stack([start[0], end[0]])


def solve_bratu(strength, nodes=11, guess=0.0, **options):
    ts = jnp.linspace(0.0, 1.0, nodes)
    ys = jnp.stack([guess * jnp.sin(jnp.pi * ts), guess * jnp.pi * jnp.cos(jnp.pi * ts)], 1)
    return sciml.solve_bvp(bratu, both_zero, ts, ys, args=strength, **options)


def exact_middle(strength, branch):
    r"""$u(1/2) = 2 \log \cosh(\theta/4)$ with $\theta = \sqrt{2 \lambda} \cosh(\theta / 4)$."""
    bracket = {"lower": (0.1, 4.7987), "upper": (4.7988, 20.0)}[branch]
    theta = scipy.optimize.brentq(lambda x: x - np.sqrt(2 * strength) * np.cosh(x / 4), *bracket)
    return 2 * np.log(np.cosh(theta / 4))


@pytest.mark.parametrize("branch, guess", [("lower", 0.0), ("upper", 5.0)])
def test_both_solutions_of_bratu(branch, guess):
    sol = solve_bratu(1.0, guess=guess, rtol=1e-4)
    np.testing.assert_allclose(sol.evaluate(0.5)[0], exact_middle(1.0, branch), rtol=1e-4)
    assert sol.status == 0 and len(sol.ts) >= 11
    np.testing.assert_allclose(sol.derivative(0.5)[0], 0.0, atol=2e-3)


@pytest.mark.x64
def test_order_four():
    def error(nodes):
        sol = solve_bratu(1.0, nodes, rtol=1e6)  # no node is added
        return abs(sol.evaluate(0.5)[0] - exact_middle(1.0, "lower"))

    assert np.log2(error(9) / error(17)) > 3.8


@pytest.mark.x64
def test_troesch_has_a_layer_that_nodes_are_added_for():
    """u'' = 10 sinh(10 u); published: u'(0) = 3.5834e-4."""

    def field(t, y, args):
        return jnp.stack([y[1], 10 * jnp.sinh(10 * y[0])])

    def ends(start, end, args):
        return jnp.stack([start[0], end[0] - 1])

    ts = np.linspace(0.0, 1.0, 41)
    sol = sciml.solve_bvp(field, ends, ts, np.stack([ts**8, 8 * ts**7], 1), rtol=1e-3)
    np.testing.assert_allclose(sol.ys[0, 1], 3.5834e-4, rtol=2e-3)
    steps = np.diff(sol.ts)
    assert steps[-1] < 0.3 * steps[0]
    peer = scipy.integrate.solve_bvp(
        lambda t, y: np.stack([y[1], 10 * np.sinh(10 * y[0])]),
        lambda a, b: np.array([a[0], b[0] - 1]),
        ts,
        np.stack([ts**8, 8 * ts**7]),
        tol=1e-6,
        max_nodes=20000,
    )
    np.testing.assert_allclose(sol.evaluate(0.9)[0], peer.sol(0.9)[0], rtol=1e-3)


@pytest.mark.x64
def test_derivatives_by_args_in_both_modes_and_of_members():
    found = solve_bratu(1.0, rtol=1e-5)

    def middle(strength):
        sol = sciml.solve_bvp(bratu, both_zero, found.ts, found.ys, args=strength, rtol=1e-2)
        return sol.evaluate(0.5)[0]

    expected = (exact_middle(1 + 1e-5, "lower") - exact_middle(1 - 1e-5, "lower")) / 2e-5
    np.testing.assert_allclose(jax.jit(jax.grad(middle))(1.0), expected, rtol=1e-4)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(middle))(1.0), expected, rtol=1e-4)
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(middle)))(jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(values, [exact_middle(s, "lower") for s in (0.5, 1.0)], rtol=1e-4)
    np.testing.assert_allclose(slopes[1], expected, rtol=1e-4)


def test_an_eigenvalue_is_a_component_and_states_are_trees_backwards():
    """u'' = -k^2 u with u(0) = 0, u'(0) = 1, u(1) = 0 has k = pi."""

    def field(t, y, args):
        return {"u": jnp.stack([y["u"][1], -(y["k"] ** 2) * y["u"][0]]), "k": jnp.zeros_like(y["k"])}

    def ends(last, first, args):
        return first["u"][0], first["u"][1] - 1, last["u"][0]

    ts = np.linspace(1.0, 0.0, 15)
    guess = {"u": np.stack([np.sin(3 * ts), np.cos(3 * ts)], 1), "k": np.full(15, 3.0)}
    sol = sciml.solve_bvp(field, ends, ts, guess, rtol=1e-3)
    np.testing.assert_allclose(sol.ys["k"], np.pi, rtol=1e-3)
    np.testing.assert_allclose(sol.evaluate(0.5)["u"][0], 1 / np.pi, rtol=1e-3)
    assert np.isnan(sol.evaluate(1.5)["u"]).all()


def test_what_is_no_problem():
    ts = np.linspace(0.0, 1.0, 5)
    with pytest.raises(ValueError, match="one number for each of the 2 state elements, but returns 1"):
        sciml.solve_bvp(bratu, lambda a, b, args: a[0], ts, np.zeros((5, 2)), args=1.0)
    with pytest.raises(ValueError, match="for each of the 5 nodes"):
        sciml.solve_bvp(bratu, both_zero, ts, np.zeros((4, 2)), args=1.0)
    with pytest.raises(ValueError, match="strictly ascend"):
        sciml.solve_bvp(bratu, both_zero, ts[[0, 2, 1]], np.zeros((3, 2)), args=1.0)
    with pytest.raises(sciml.SolveError, match="did not converge"):
        solve_bratu(10.0)  # beyond the fold there is no solution
    with pytest.raises(sciml.SolveError, match="max_nodes"):
        solve_bratu(3.4, nodes=3, rtol=1e-5 if jax.config.read("jax_enable_x64") else 1e-4, max_nodes=4)


LAYER = 1e-2


def layer(t, y, args):
    return jnp.stack([y[1], -y[1] / LAYER])


def layer_ends(start, end, factors):
    return factors * jnp.stack([start[0], end[0] - 1])


@pytest.mark.parametrize("factors", [(1.0, 1.0), (1e6, 1e6), (1e6, 1e-6), (1e-12, 1.0)])
def test_a_linear_layer_whatever_its_conditions_are_multiplied_by(factors):
    """LAYER y'' + y' = 0: from 9 nodes SciPy comes to 57, in float64; float32 does, too."""
    sol = sciml.solve_bvp(layer, layer_ends, jnp.linspace(0.0, 1.0, 9), jnp.zeros((9, 2)), args=jnp.array(factors))
    exact = (1 - np.exp(-np.asarray(sol.ts) / LAYER)) / (1 - np.exp(-1 / LAYER))
    np.testing.assert_allclose(sol.ys[:, 0], exact, atol=3e-5)
    assert len(sol.ts) == 57 and sol.stats.executed <= 8


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_a_state_in_other_units(unit):
    """u'' = unit, zero at both ends, beside a derivative by a factor of the equations."""

    def field(t, y, args):
        return jnp.stack([y[1], args * unit])

    def middle(strength):
        sol = sciml.solve_bvp(field, both_zero, jnp.linspace(0.0, 1.0, 5), jnp.zeros((5, 2)), args=strength)
        return sol.evaluate(0.5)[0]

    value, slope = jax.value_and_grad(middle)(1.0)
    np.testing.assert_allclose([value / unit, slope / unit], -1 / 8, rtol=1e-4)


def test_a_result_of_another_solver_is_where_the_iteration_starts():
    """A tolerance that any state meets, as the conditions are tiny, does not end with that state."""
    ts, ys = jnp.linspace(0.0, 1.0, 9), jnp.zeros((9, 2))
    options = dict(args=jnp.full(2, 1e-9), solver=optimistix.Dogleg(1e-3, 1e-3), rtol=1e3)
    sol = sciml.solve_bvp(layer, layer_ends, ts, ys, **options)
    np.testing.assert_allclose(sol.ys[-1, 0], 1.0, rtol=1e-5)


def test_a_poor_guess_needs_damped_steps():
    """u'' = sinh(6 u), u(0) = 0, u(1) = 1 from a guess at which a full step leaves what the field can compute."""

    def field(t, y, args):
        return jnp.stack([y[1], jnp.sinh(6 * y[0])])

    def ends(start, end, args):
        return jnp.stack([start[0], end[0] - 1])

    ts = np.linspace(0.0, 1.0, 21)
    guess = np.stack([2 * np.sin(np.pi * ts), np.zeros(21)], 1)
    sol = sciml.solve_bvp(field, ends, ts, guess)
    peer = scipy.integrate.solve_bvp(
        lambda t, y: np.stack([y[1], np.sinh(6 * y[0])]),
        lambda a, b: np.array([a[0], b[0] - 1]),
        ts,
        np.stack([ts, np.ones(21)]),
        tol=1e-6,
    )
    np.testing.assert_allclose(sol.evaluate(0.8)[0], peer.sol(0.8)[0], rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_units_do_not_matter(unit):
    def middle(strength, unit, nodes=None):
        model = lambda t, y, args: jnp.stack([y[1], -unit * args * jnp.exp(y[0] / unit)])  # noqa: E731
        ts, ys = nodes or (jnp.linspace(0.0, 1.0, 11), unit * jnp.ones((11, 2)))
        return sciml.solve_bvp(model, both_zero, ts, ys, args=strength)

    expected, sol = (middle(jnp.array(1.0), x) for x in (1.0, unit))
    assert len(sol.ts) == len(expected.ts)
    np.testing.assert_allclose(sol.ys / unit, expected.ys, rtol=1e-5, atol=1e-6)
    slope, wanted = (
        jax.grad(lambda s, x=x, o=o: middle(s, x, (o.ts, o.ys)).evaluate(0.5)[0] / x)(1.0)
        for x, o in ((unit, sol), (1.0, expected))
    )
    np.testing.assert_allclose(slope, wanted, rtol=1e-4)
