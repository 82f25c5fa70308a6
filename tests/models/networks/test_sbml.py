"""Models in SBML, written here in its own language: all that is read, events and jumps, and what is refused."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models
from tests.conftest import X64

pytest.importorskip("sbmlode")
TIGHT = dict(rtol=1e-9, atol=1e-11) if X64 else dict(rtol=1e-5, atol=1e-7)
ATOL = 1e-7 if X64 else 2e-4


def ci(name):
    return f"<ci>{name}</ci>"


def cn(x):
    return f"<cn>{x}</cn>"


def ap(operation, *parts):
    return f"<apply><{operation}/>{''.join(parts)}</apply>"


TIME = '<csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/time"> t </csymbol>'


DELAY = '<csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/delay"> delay </csymbol>'


def math(inner):
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML">{inner}</math>'


def sbml(**lists):
    """A model of lists of elements."""
    names = dict(
        functions="FunctionDefinitions", compartments="Compartments", species="Species", parameters="Parameters",
        initial="InitialAssignments", rules="Rules", reactions="Reactions", events="Events",
    )  # fmt: skip
    body = "".join(f"<listOf{names[k]}>{lists[k]}</listOf{names[k]}>" for k in names if k in lists)
    return (
        '<?xml version="1.0"?><sbml xmlns="http://www.sbml.org/sbml/level3/version2/core" level="3" version="2">'
        f'<model id="written">{body}</model></sbml>'
    )


def species(name, amount, only="false"):
    return (
        f'<species id="{name}" compartment="V" initialConcentration="{amount}" hasOnlySubstanceUnits="{only}" '
        'boundaryCondition="false" constant="false"/>'
    )


def parameter(name, value, constant="true"):
    return f'<parameter id="{name}" value="{value}" constant="{constant}"/>'


def reaction(name, taken, made, law):
    def side(kind, names):
        found = "".join(f'<speciesReference species="{n}" stoichiometry="{c}" constant="true"/>' for n, c in names)
        return f"<listOf{kind}>{found}</listOf{kind}>" if names else ""

    return (
        f'<reaction id="{name}" reversible="false">{side("Reactants", taken)}{side("Products", made)}'
        f"<kineticLaw>{math(law)}</kineticLaw></reaction>"
    )


def event(trigger, changes, extra="", initial="true", persistent="true", early="true", name="happens"):
    """An event; `early` is whether values are from the time of the trigger."""
    assigned = "".join(f'<eventAssignment variable="{n}">{math(f)}</eventAssignment>' for n, f in changes.items())
    return (
        f'<event id="{name}" useValuesFromTriggerTime="{early}">'
        f'<trigger initialValue="{initial}" persistent="{persistent}">'
        f"{math(trigger)}</trigger>{extra}<listOfEventAssignments>{assigned}</listOfEventAssignments></event>"
    )


V = '<compartment id="V" size="2" constant="true"/>'
BODY = ap("divide", ci("x"), ap("plus", ci("m"), ci("x")))
LAMBDA = f"<lambda><bvar><ci>x</ci></bvar><bvar><ci>m</ci></bvar>{BODY}</lambda>"
MM = f'<functionDefinition id="mm">{math(LAMBDA)}</functionDefinition>'


def test_reactions_rules_functions_and_starts():
    """Concentrations in a compartment, a law by a function, a rate rule, and what follows from others."""
    call = "<apply><ci>mm</ci><ci>S</ci><ci>K</ci></apply>"
    text = sbml(
        functions=MM,
        compartments=V,
        species=species("S", 3) + species("P", 0),
        parameters=parameter("vmax", 4) + parameter("K", 0.5) + parameter("half", 0) + parameter("total", 0, "false")
        + parameter("clock", 1, "false"),
        initial=f'<initialAssignment symbol="half">{math(ap("divide", ci("vmax"), cn(2)))}</initialAssignment>'
        f'<initialAssignment symbol="P">{math(ap("times", cn(2), ci("half")))}</initialAssignment>',
        rules=f'<assignmentRule variable="total">{math(ap("plus", ci("S"), ci("P")))}</assignmentRule>'
        f'<rateRule variable="clock">{math(ap("minus", ap("times", ci("half"), ci("clock"))))}</rateRule>',
        reactions=reaction(
            "turn", [("S", 1)], [("P", 2)], ap("times", ci("V"), ci("vmax"), call)
        ),
    )  # fmt: skip
    model = models.read_sbml(text)
    assert set(model.states) == {"S", "P", "clock"} and model.reactions == ("turn",)
    assert set(model.parameters) == {"V", "vmax", "K"}
    i, j, k = map(model.index, ("S", "P", "clock"))
    np.testing.assert_allclose(model.y0[np.array([i, j, k])], [3, 4, 1])
    y = model.state(S=1.5)
    v = 4 * 1.5 / 2
    found = model(0.0, y, None)
    np.testing.assert_allclose(found[np.array([i, j, k])], [-v, 2 * v, -2.0], rtol=1e-6)
    np.testing.assert_allclose(model.value("total", 0.0, y), 5.5)
    np.testing.assert_allclose(model.value("turn", 0.0, y), 2 * v, rtol=1e-6)
    # the start follows the parameter, and so does what has its value from there
    slope = jax.grad(lambda m: m.y0[j] + m(0.0, y, None)[k])(model).parameters["vmax"]
    np.testing.assert_allclose(slope, 1.0 - 0.5, rtol=1e-6)
    opened = model.with_initial_parameters("P", "half")
    assert opened.parameters["P(0)"] == 4 and opened.parameters["half"] == 2
    assert set(opened.parameters) == {"V", "vmax", "K", "P(0)", "half"}
    with pytest.raises(ValueError, match="is not part of the state of `written`. Did you mean `clock`"):
        model.index("clok")
    with pytest.raises(ValueError, match="no formula for its initial value"):
        model.with_initial_parameters("K")
    faster = model.with_parameters(vmax=8.0)
    np.testing.assert_allclose(faster.y0[j], 8.0)
    with pytest.raises(ValueError, match="no parameter `vmx`. Did you mean `vmax`"):
        model.with_parameters(vmx=8.0)
    with pytest.raises(ValueError, match="`half` is computed"):
        model.with_parameters(half=8.0)
    with pytest.raises(ValueError, match=r"`P` is part of the state.*model.state\(P=...\)"):
        model.with_parameters(P=8.0)


def decay(**lists):
    rate = lists.pop("rate", ap("minus", ap("times", ci("k"), ci("x"))))
    return sbml(
        parameters=parameter("x", 1, "false") + parameter("k", 2) + parameter("T", 0.5) + parameter("dose", 3),
        rules=f'<rateRule variable="x">{math(rate)}</rateRule>',
        **lists,
    )


def solved(model, t1=1.0, **options):
    return sciml.solve(model, model.y0, t0=0.0, t1=t1, events=model.events() or None, throw=False, **TIGHT, **options)


def test_an_event_at_a_time_and_its_derivatives():
    """A dose: exact, with the derivative by its time, as a `Schedule`."""
    model = models.read_sbml(decay(events=event(ap("geq", TIME, ci("T")), {"x": ap("plus", ci("x"), ci("dose"))})))
    assert [type(e).__name__ for e in model.events()] == ["Schedule"]
    value, slope = jax.jit(jax.value_and_grad(lambda m: solved(m).ys[-1, 0]))(model)
    exact = lambda k, T, dose: jnp.exp(-k) + dose * jnp.exp(-k * (1 - T))  # noqa: E731
    np.testing.assert_allclose(value, exact(2.0, 0.5, 3.0), atol=ATOL)
    wanted = jax.grad(exact, (0, 1, 2))(2.0, 0.5, 3.0)
    np.testing.assert_allclose([slope.parameters[n] for n in ("k", "T", "dose")], wanted, atol=10 * ATOL)


def test_an_event_of_the_state_changes_a_constant():
    """What falls below a half stops: the constant that an event assigns is part of the state."""
    text = decay(events=event(ap("lt", ci("x"), cn(0.5)), {"k": cn(0)}))
    model = models.read_sbml(text.replace('id="k" value="2" constant="true"', 'id="k" value="2" constant="false"'))
    assert model.states == ("x", "k") and [type(e).__name__ for e in model.events()] == ["Event"]
    np.testing.assert_allclose(solved(model).ys[-1], [0.5, 0.0], atol=ATOL)


def test_steps_end_where_a_piecewise_of_the_time_jumps():
    piece = f"<piece>{ci('dose')}{ap('lt', TIME, ci('T'))}</piece>"
    pulse = f"<piecewise>{piece}<otherwise>{cn(0)}</otherwise></piecewise>"
    model = models.read_sbml(decay(rate=ap("minus", pulse, ap("times", ci("k"), ci("x")))))
    (jumps,) = model.events()
    assert jumps.times.tolist() == [0.5] and jumps.update is None
    exact = np.exp(-2) + 1.5 * (np.exp(-1) - np.exp(-2))
    np.testing.assert_allclose(solved(model).ys[-1, 0], exact, atol=ATOL)


@pytest.mark.parametrize(
    "lists, words",
    [
        (
            dict(events=event(ap("eq", ci("x"), cn(0.5)), {"x": cn(1)})),
            "`happens` tests a time-dependent value for equality",
        ),
        (dict(rate=f"<apply>{DELAY}{ci('x')}{ci('x')}</apply>"), "delay .`x`."),
    ],
)
def test_what_is_not_supported_is_refused_by_name(lists, words):
    with pytest.raises(ValueError, match=words):
        models.read_sbml(decay(**lists))


def rule_of(*parts):
    """An algebraic rule for the sum of its parts."""
    return f"<algebraicRule>{math(ap('plus', *parts))}</algebraicRule>"


def test_algebraic_rules():
    """Two rules that share variables, one of which is behind an assignment rule; a species; a guess at the start."""
    twice = f'<assignmentRule variable="c">{math(ap("times", cn(2), ci("a")))}</assignmentRule>'
    guess = f'<initialAssignment symbol="a">{math(cn(9))}</initialAssignment>'
    text = sbml(
        compartments=V,
        species=species("S", 3) + species("P", 0),
        parameters="".join(parameter(n, 1, "false") for n in "abc") + parameter("total", 4),
        initial=guess,
        # c + b = 4 S and b - a = 1 with c = 2 a; P = total - S
        rules=rule_of(ci("c"), ci("b"), ap("times", cn(-4), ci("S"))) + twice
        + rule_of(ap("minus", ci("b"), ci("a")), cn(-1)) + rule_of(ci("S"), ci("P"), ap("minus", ci("total"))),
        reactions=reaction("turn", [("S", 1)], [], ap("times", ci("V"), ci("P"))),
    )  # fmt: skip
    model = models.read_sbml(text)
    assert model.states == ("S",) and set(model.parameters) == {"V", "total"}
    y = model.state(S=1.0)
    found = {name: float(model.value(name, 0.0, y)) for name in ("a", "b", "c", "P")}
    assert found == pytest.approx({"a": 1.0, "b": 2.0, "c": 2.0, "P": 3.0})
    slope = jax.grad(lambda m: m(0.0, y, None)[0])(model).parameters["total"]  # S' = -(total - S)
    np.testing.assert_allclose(slope, -1.0)


@pytest.mark.parametrize(
    "rule, words",
    [
        ([ci("x")], "`algebraicRule` has no variable left to determine, which is not supported"),
        ([ap("times", ci("z"), ci("z")), cn(-2)], "`algebraicRule` is not linear in `z`, which is not supported"),
    ],
)
def test_algebraic_rules_that_are_refused(rule, words):
    text = decay().replace("<listOfRules>", f"<listOfRules>{rule_of(*rule)}")
    text = text.replace("</listOfParameters>", f"{parameter('z', 1, 'false')}</listOfParameters>")
    with pytest.raises(ValueError, match=rf"SBML, line 1, column \d+: the algebraic rule {words}"):
        models.read_sbml(text)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        models.read_sbml(tmp_path / "none.xml")
    path = pathlib.Path(tmp_path / "decay.xml")
    path.write_text(decay())
    assert models.read_sbml(path).states == ("x",)


def test_functions_within_functions_are_bounded():
    """What has millions of operations when its functions are put in is refused, as is what calls itself."""
    lam = lambda body: f"<lambda><bvar><ci>x</ci></bvar>{body}</lambda>"  # noqa: E731
    call = lambda i, x: f"<apply><ci>f{i}</ci>{x}</apply>"  # noqa: E731
    define = lambda i, body: f'<functionDefinition id="f{i}">{math(lam(body))}</functionDefinition>'  # noqa: E731
    functions = define(0, after := ap("plus", ci("x"), cn(1)))
    functions += "".join(define(i, ap("plus", call(i - 1, ci("x")), call(i - 1, ci("x")))) for i in range(1, 30))
    with pytest.raises(ValueError, match=r"line 1, column \d+: the formula of `f12` has \d+ operations"):
        models.read_sbml(decay(functions=functions, rate=call(29, ci("x"))))
    nested = ci("x")
    for _ in range(300):
        nested = ap("exp", nested)
    with pytest.raises(ValueError, match="301 levels"):
        models.read_sbml(decay(rate=nested))
    with pytest.raises(ValueError, match="the function `f0` calls itself: f0 -> f0"):
        models.read_sbml(decay(functions=define(0, call(0, after)), rate=call(0, ci("x"))))
    with pytest.raises(ValueError, match="`f0` has 1 arguments, but is called with 2"):
        models.read_sbml(decay(functions=define(0, after), rate=call(0, ci("x") + ci("x"))))


@pytest.mark.parametrize(
    "text, words",
    [
        (decay(rate=ap("times", ci("kk"), ci("x"))), r"line 1, column \d+: .*`x` has the unknown name `kk`. Did"),
        (decay(events=event(ap("gt", ci("y"), cn(1)), {"x": cn(1)})), "formula of `happens` has the unknown name `y`"),
        ("<sbml>", "line 2, column 6: XML content is not well-formed"),
        ("<html/>", "SBML, line 2"),
        (decay().replace("</model>", ""), "line 1, column"),
    ],
)
def test_wrong_text_is_refused_with_its_place(text, words):
    with pytest.raises(ValueError, match=words):
        models.read_sbml(text)


def test_a_fast_reaction_of_level_2_and_constants():
    text = (
        '<sbml xmlns="http://www.sbml.org/sbml/level2/version4" level="2" version="4"><model><listOfCompartments>'
        '<compartment id="V"/></listOfCompartments><listOfSpecies><species id="S" compartment="V" '
        'initialConcentration="1"/></listOfSpecies><listOfReactions><reaction id="J" fast="true" reversible="false">'
        f'<listOfReactants><speciesReference species="S"/></listOfReactants><kineticLaw>{math(ci("S"))}</kineticLaw>'
        "</reaction></listOfReactions></model></sbml>"
    )
    with pytest.raises(ValueError, match=r"fast reaction \(`J`\), line"):
        models.read_sbml(text)
    slow = models.read_sbml(text.replace('fast="true"', 'fast="false"'))
    assert slow(0.0, slow.y0, None)[0] == -1
    avogadro = '<csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/avogadro"> N </csymbol>'
    model = models.read_sbml(decay(rate=ap("times", avogadro, ci("x"))))
    np.testing.assert_allclose(model(0.0, model.y0, None)[0], 6.02214179e23, rtol=1e-7)
    model = models.read_sbml(decay(rate=ap("divide", cn(1), cn(0))))
    assert np.isinf(model(0.0, model.y0, None)[0])
