"""Rodas5P."""

import equinox as eqx
import lineax as lx

from ...linear._preconditioners import AbstractPreconditioner
from ._linear_options import preconditioner_field, solver_field
from ._mass_matrix import Mass, as_mass
from ._rosenbrock import Tableau
from ._rosenbrock_solver import AbstractRosenbrockSolver

_A = (
    (),
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946),
    (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946, 1.0),
    (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946, 1.0, 1.0),
)
_C = (
    (),
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (
        30.91273214028599,
        -3.1208243349937974,
        77.79954646070892,
        34.28646028294783,
        -19.097331116725623,
        -28.087943162872662,
    ),
    (
        37.80277123390563,
        -3.2571969029072276,
        112.26918849496327,
        66.9347231244047,
        -40.06618937091002,
        -54.66780262877968,
        -9.48861652309627,
    ),
)
_TABLEAU = Tableau(
    gamma=0.21193756319429014,
    a=_A,
    c=_C,
    nodes=(0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1.0, 1.0, 1.0),
    d=(
        0.21193756319429014,
        -0.42387512638858027,
        -0.3384627126235924,
        1.8046452872882734,
        2.325825639765069,
        0.0,
        0.0,
        0.0,
    ),
    weights=(*_A[-1], 1.0),
    error_weights=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    dense=(
        (
            25.948786856663858,
            -2.5579724845846235,
            10.433815404888879,
            -2.3679251022685204,
            0.524948541321073,
            1.1241088310450404,
            0.4272876194431874,
            -0.17202221070155493,
        ),
        (
            -9.91568850695171,
            -0.9689944594115154,
            3.0438037242978453,
            -24.495224566215796,
            20.176138334709044,
            15.98066361424651,
            -6.789040303419874,
            -6.710236069923372,
        ),
        (
            11.419903575922262,
            2.8879645146136994,
            72.92137995996029,
            80.12511834622643,
            -52.072871366152654,
            -59.78993625266729,
            -0.15582684282751913,
            4.883087185713722,
        ),
    ),
    order=5,
    error_order=5,
)


class Rodas5P(AbstractRosenbrockSolver):
    r"""Rodas5P, a Rosenbrock method of order 5(4) for stiff equations $M \dot y = f(t, y)$.

    Eight stages, stiffly accurate, L-stable, with dense output of order 4; also for singular $M$ if the system has
    index one. The method of choice for stiff systems at normal tolerances, down to about 1e-9. The Jacobian and the
    time derivative are computed in forward mode once per step. Systems of up to eight unknowns, and sparse ones of up
    to sixteen, are factorised entry by entry, without pivoting if there is no mass matrix. For larger ones the
    program of the model determines the possible entries of the Jacobian: independent parts are factorised side by side,
    bands as bands, and everything else as dense; `sciml.inspect.jacobian` shows it.

    With a singular mass matrix `sciml.solve` first solves the algebraic equations at `t0` for the
    algebraic variables, for which `y0` is the guess; inside `diffrax.diffeqsolve`, `y0` must satisfy
    them. In float32 use a relative tolerance of 1e-5 or more.

    Attributes:
        mass: The constant matrix $M$, of shape `(n, n)` for a state of `n` elements (a PyTree in the order
            of its leaves), or None for the identity. For complex elements it multiplies real and imaginary parts
            equally.
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab` for linear systems in which the Jacobian is only multiplied
            with vectors; None to choose by its structure. Systems are solved to its tolerances or to a small part of
            the tolerated error of a step, whichever is smaller, and derivatives to nearly all digits. A step whose
            systems are not solved within `max_steps` products (by default 300) is tried again with a shorter length.
        preconditioner: A preconditioner for the iteration, such as `BlockJacobi()` or `ILU0()`.

    Raises:
        ValueError: If `mass` is not a finite square matrix, or does not fit the state, or the preconditioner does not.
        TypeError: If `mass` is traced or not real, or `linear_solver` no such iteration.

    Source:
        G. Steinebach, Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the
        Julia Differential Equations package, BIT Numerical Mathematics 63:27 (2023),
        doi:10.1007/s10543-023-00967-x.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.Robertson()
        y0 = jnp.array([1.0, 0.0, 0.0])
        sol = sciml.solve(model, y0, t0=0.0, t1=100.0, solver=sciml.solvers.Rodas5P())
        assert sol.stats.accepted < 200  # an explicit method needs a hundred thousand
        assert abs(model.total(sol.ys[-1]) - 1) < 1e-4
        ```
    """

    mass: Mass | None = eqx.field(default=None, converter=as_mass, static=True)
    linear_solver: lx.AbstractLinearSolver | None = solver_field()
    preconditioner: AbstractPreconditioner | None = preconditioner_field()

    @property
    def tableau(self) -> Tableau:
        """The coefficients."""
        return _TABLEAU
