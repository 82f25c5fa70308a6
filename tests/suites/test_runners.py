"""The runners of other projects' suites, by small cases written here: none of the suites' files is needed."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.petab.test_petab import COLUMNS, written
from tests.suites import diffrax as of_diffrax, page, petab, scipy as of_scipy
from tests.suites.numpy_functions import as_jax
from tests.suites.outcomes import Outcome, counts
from tests.suites.replay import AnyCount

pytestmark = pytest.mark.x64

OF_DIFFRAX = """
import diffrax
import jax.numpy as jnp
import pytest

def solve(**options):
    given = (diffrax.ODETerm(lambda t, y, args: -y), diffrax.Tsit5(), 0, 1, 0.1, 1)
    return diffrax.diffeqsolve(*given, **options)

def test_right():
    sol = solve()
    assert jnp.allclose(sol.ys, jnp.exp(-1.0)) and sol.stats["num_steps"] == 10
    assert sol.result == diffrax.RESULTS.successful

def test_not_right():
    assert jnp.allclose(solve().ys, 1.0)

def test_not_mapped():
    with pytest.raises(Exception):
        solve(progress_meter=diffrax.TextProgressMeter())

def test_own_part():
    assert diffrax.Tsit5().order(None) == 5

@pytest.fixture
def metered():
    return solve(progress_meter=diffrax.TextProgressMeter())

def test_fixture(metered):
    assert metered

def test_own_words():
    with pytest.warns(UserWarning):
        solve(max_steps=-1)
"""
OF_SCIPY = """
import numpy as np
from scipy.integrate import solve_ivp

def test_ivp():
    res = solve_ivp(lambda t, y: np.array([y[1], -y[0]]), [0, 1], [1, 0], rtol=1e-8, t_eval=[0.5, 1.0])
    assert res.success and res.nfev < 3
    np.testing.assert_allclose(res.y[0], np.cos([0.5, 1.0]), rtol=1e-5)
"""
OF_SCIPY_BVP = """
import numpy as np
from scipy.integrate._bvp import solve_bvp

def test_bvp():
    fun, bc = lambda x, y: np.vstack((y[1], -y[0])), lambda a, b: np.hstack((a[0], b[0] - 1))
    res = solve_bvp(fun, bc, np.linspace(0, 1, 5), np.zeros((2, 5)))
    np.testing.assert_allclose(res.sol(0.5)[0], np.sin(0.5) / np.sin(1), rtol=1e-4)

def test_singular():
    solve_bvp(None, None, np.linspace(0, 1, 5), np.zeros((2, 5)), S=np.eye(2))
"""


def outcomes(found):
    return {x.case.split("::")[-1]: x.outcome for x in found}


def test_tests_of_diffrax_are_judged_by_rules(tmp_path):
    original = diffrax.diffeqsolve
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "__init__.py").touch()
    (tmp_path / "test" / "test_small.py").write_text(OF_DIFFRAX)
    found = of_diffrax.run(tmp_path)
    assert outcomes(found) == dict(
        test_right="passed",
        test_not_right="wrong",
        test_not_mapped="refused",
        test_own_part="refused",
        test_fixture="refused",
        test_own_words="refused",
    )
    assert "progress_meter" in next(x.why for x in found if x.case.endswith("not_mapped"))
    assert diffrax.diffeqsolve is original


def test_tests_of_scipy_run_numpy_functions(tmp_path):
    for name, text in {"_ivp/tests/test_ivp.py": OF_SCIPY, "tests/test_bvp.py": OF_SCIPY_BVP}.items():
        path = tmp_path / "scipy" / "integrate" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    found = of_scipy.run(tmp_path)
    assert outcomes(found) == dict(test_ivp="passed", test_bvp="passed", test_singular="refused")


def test_events_of_scipy_stay_in_their_order():
    def field(t, y):
        return [y[1], -y[0]]

    def crossing(t, y):
        return y[0]

    def late(t, y):
        return t - 5

    late.terminal = True
    res = of_scipy.solve_ivp(field, (0, 9), [1.0, 0.0], events=[crossing, late], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(res.t_events[0], [np.pi / 2, 1.5 * np.pi], rtol=1e-6)
    np.testing.assert_allclose([res.t_events[1][0], res.t[-1]], 5.0)
    assert res.status == 1 and res.y_events[0].shape == (2, 2)


def test_vectorized_fields_of_scipy_take_columns():
    """Traced, and called back because it writes into its argument's copy."""

    def stacked(t, y):
        return np.vstack((y[1], -y[0]))

    def written(t, y):
        out = np.empty_like(y)
        out[0], out[1] = y[1], -y[0]
        return out

    for field in (stacked, written):
        sol = of_scipy.solve_ivp(field, (0, 1), [0.0, 1.0], vectorized=True, rtol=1e-6)
        np.testing.assert_allclose(sol.y[:, -1], [np.sin(1), np.cos(1)], rtol=1e-5)


def test_numpy_functions_that_branch_are_called_back():
    def branching(x):
        out = np.zeros(2)
        out[0] = x[1] ** 2 if x[0] > 0 else 0.0
        return out

    like = jax.ShapeDtypeStruct((2,), float)
    call = as_jax(branching, (2,), float, like)
    x = jnp.array([1.0, 3.0])
    np.testing.assert_allclose(jax.jit(call)(x), [9.0, 0.0])
    np.testing.assert_allclose(jax.jit(jax.jacfwd(call))(x), [[0.0, 6.0], [0.0, 0.0]], atol=1e-8)


@pytest.mark.parametrize("right", [-0.5 * np.log(2 * np.pi), 1.0])
def test_a_case_of_petab_is_compared_within_its_tolerances(tmp_path, right):
    pytest.importorskip("petab.v1")
    path = written(
        tmp_path,
        parameters=f"{COLUMNS}\nk1 lin 0 10 1 1\n",
        conditions="conditionId A\nc0 2\n",
        observables="observableId observableFormula noiseFormula\na A 1\n",
        measurements="observableId simulationConditionId measurement time\na c0 2 0\n",
    )
    folder = tmp_path / "cases" / "v1.0.0" / "sbml" / "0001"
    folder.mkdir(parents=True)
    for name in ("parameters.tsv", "conditions.tsv", "observables.tsv", "measurements.tsv", "model.xml"):
        (tmp_path / name).rename(folder / name)
    path.rename(folder / "_0001.yaml")
    (folder / "s.tsv").write_text("observableId\tsimulation\na\t2.0\n")
    tolerances = "tol_llh: 1.0e-3\ntol_chi2: 1.0e-3\ntol_simulations: 1.0e-3\n"
    (folder / "_0001_solution.yaml").write_text(f"llh: {right}\nchi2: 0.0\nsimulation_files: [s.tsv]\n{tolerances}")
    (found,) = petab.run(tmp_path)
    assert found.case == "v1.0.0/sbml/0001" and found.outcome == ("passed" if right < 0 else "wrong"), found.why


def test_the_command_writes_a_row_and_keeps_the_others(tmp_path):
    written_page, source = tmp_path / "table.txt", tmp_path / "scipy" / "integrate"
    for name, text in {"_ivp/tests/test_ivp.py": "def test_a():\n    pass\n", "tests/test_bvp.py": ""}.items():
        (source / name).parent.mkdir(parents=True)
        (source / name).write_text(text)
    kept = page.row("petab", "abc", [Outcome("a", "passed")])
    written_page.write_text("\n".join(kept) + "\n")
    page.main(["--scipy", str(tmp_path), "--most", "1"], written_page)
    lines = written_page.read_text().splitlines()
    assert lines[0] == kept[0] and "0 passed, 1 refused, 0 wrong" in lines[2] and "at most 1 of each test" in lines[2]


def test_counts_and_rows():
    assert AnyCount(1) < 0 and AnyCount(1) == 7 and not AnyCount(1) != 3
    found = [Outcome("a", "passed"), Outcome("b", "refused", "the term `x` has 3 parts"), Outcome("c", "wrong", "off")]
    found += [Outcome("d", "refused", "the term `x` has 14 parts")]
    assert counts(found) == dict(passed=1, refused=2, wrong=1)
    lines = page.row("petab", "abc", found)
    assert "1 passed, 2 refused, 1 wrong" in lines[0] and "    refused 2: the term `x` has N parts" in lines
    assert page.kept_rows("\n".join([*lines, "", *page.row("scipy", "x", [])]))["petab"][: len(lines)] == lines
