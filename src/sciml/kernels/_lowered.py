"""Primitives that the compilers of kernels support."""

COMMON = frozenset(
    """
    abs add and atan2 broadcast_in_dim clamp convert_element_type copy cos custom_jvp_call div eq exp exp2 ge gt
    integer_pow jit le log logistic lt max min mul ne neg not or rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin square stop_gradient sub tanh xor
    """.split()
)
"""The primitives that all of them lower."""

LOWERED = {
    "mosaic_gpu": COMMON | {"erf"},
    "mosaic_tpu": COMMON | {"add_any", "ceil", "erf", "floor", "is_finite", "log1p", "pow", "sqrt", "tan"},
}
"""For each kernel the primitives that it lowers in every supported version of JAX."""
