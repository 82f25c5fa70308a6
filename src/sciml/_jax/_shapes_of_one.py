"""Whether what is traced for many members has to have the shapes that it had for one.

A rule that keeps less of each member where there are many has no other way of knowing that JAX counts on these shapes:

- in the branches of a `cond` whose predicate differs between members, all of which it computes, to select among the
  results;
- where it batches a program that it has traced for one member, such as `jit` of a gradient or a loop with one in its
  body: what the forward pass hands on there, the backward pass takes as what it was for one.
"""

import inspect
from typing import Any

_BRANCHES, _PROGRAM = "_cond_batching_rule", "eval_jaxpr"


def shapes_are_those_of_one() -> bool:
    """Returns whether what is traced now has to have the shapes that one member has."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_name
        if name == _BRANCHES or (name == _PROGRAM and _hands_on(frame.f_locals)):
            return True
        frame = frame.f_back
    return False


def _hands_on(evaluation: Any) -> bool:
    """Returns whether the part of a program that is evaluated now has another one of the same name after it.

    Args:
        evaluation: The local variables of the evaluation.
    """
    eqn = evaluation.get("eqn")
    name = None if eqn is None else eqn.params.get("name")
    if name is None:
        return False
    handed_on = set(eqn.outvars)
    later = (other for other in evaluation["jaxpr"].eqns if other is not eqn and other.params.get("name") == name)
    return any(not handed_on.isdisjoint(v for v in other.invars if not hasattr(v, "val")) for other in later)
