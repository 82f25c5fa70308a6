"""How much work a vector field is, in operations, for what depends on whether steps are slow beside other things."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..._choices import choices
from ..._jax._jaxprs import program_called
from ..._jax._vma import struct, vma_of
from ...kernels._lanes import is_value
from ..terms._field import AbstractField
from ._integrator import Operands

_SLOW = {"tanh", "exp", "log", "logistic", "sin", "cos", "erf", "pow", "sqrt", "rsqrt", "log1p", "expm1", "exp2"}


def work_of_field(field: AbstractField, y: PyTree, operands: Operands) -> float:
    """Returns about how many operations the vector field of one member takes.

    Args:
        field: The vector field.
        y: The state, lane values.
        operands: Lane values.
    """
    axes = vma_of((y, operands))  # the field has been traced for what varies over them

    def like(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda v: struct(v.shape, v.dtype, axes), tree, is_leaf=is_value)

    def rate(t0, y, operands):
        return field(t0, y, operands)

    return work_of(rate, like(operands.t0), like(y), like(operands.field))


def work_of(fn: Callable, *args: PyTree) -> float:
    """Returns about how many operations a function takes of arrays of such shapes and dtypes."""
    return _operations(jax.make_jaxpr(fn)(*args).jaxpr)


def _operations(jaxpr: Any) -> float:
    total = 0.0
    for eqn in jaxpr.eqns:
        size = sum(float(np.prod(getattr(v.aval, "shape", ()))) for v in eqn.outvars)
        called = program_called(eqn)
        if called is not None:
            total += _operations(called[0])
        elif eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            total += 2 * size * float(np.prod([eqn.invars[0].aval.shape[i] for i in contracted]))
        elif eqn.primitive.name in ("scan", "while", "cond"):
            total += choices().loops.branch_work * size
        else:
            total += size * (20 if eqn.primitive.name in _SLOW else 1)
    return total
