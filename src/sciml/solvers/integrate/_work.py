"""The work of a vector field, in operations, for decisions that depend on the cost of a step."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..._choices import choices
from ..._jax._vma import struct, vma_of
from ..._jax.programs import _names as names, equations, program_called
from ...kernels._lanes import is_value
from ..terms._field import AbstractField
from ._integrator import Operands


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
    return sum(map(_operations, equations(jax.make_jaxpr(fn)(*args).jaxpr, _called)), start=0.0)


def _called(eqn: Any) -> tuple:
    return (program_called(eqn) or ())[:1]


def _operations(eqn: Any) -> float:
    """The approximate number of operations of an equation, without the programs that it calls."""
    if _called(eqn):
        return 0.0
    size = sum(float(np.prod(getattr(v.aval, "shape", ()))) for v in eqn.outvars)
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * size * float(np.prod([eqn.invars[0].aval.shape[i] for i in contracted]))
    if eqn.primitive.name == "cond" or eqn.primitive.name in names.LOOPS:
        return choices().loops.branch_work * size
    return size * (20 if eqn.primitive.name in names.SLOW else 1)
