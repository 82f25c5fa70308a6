"""Gradients against finite differences, by one compiled program for both."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from sciml import verify


def check_gradient(fn: Callable, x: Any, **options: Any) -> Any:
    """Checks a gradient as `verify.check_gradient` does, and returns it.

    The program that computes the gradient also gives the values for the differences: compiling a second one takes
    longer than all the values.
    """
    both = eqx.filter_jit(eqx.filter_value_and_grad(fn))
    gradient = both(x)[1]
    verify.check_gradient(lambda x: both(x)[0], x, gradient=gradient, **options)
    return gradient
