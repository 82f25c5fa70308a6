"""JAX's internal parts for reading programs and for defining primitives; only this file imports them.

JAX promises less about these modules than about the rest: a release may rename them.
"""

from jax.extend import source_info_util as source_info_util
from jax.extend.backend import get_compile_options as get_compile_options
from jax.extend.core import (
    ClosedJaxpr as ClosedJaxpr,
    Jaxpr as Jaxpr,
    Literal as Literal,
    Primitive as Primitive,
    jaxpr_as_fun as jaxpr_as_fun,
    take_current_trace as take_current_trace,
)
from jax.interpreters import ad as ad, batching as batching, mlir as mlir, partial_eval as partial_eval
