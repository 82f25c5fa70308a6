"""The names of JAX's primitives that sciml treats in a special way, by what they have in common.

A test compares them with the primitives of the installed JAX, so that one that was renamed shows at once.
"""

JITS = frozenset(("jit",))
"""Programs of `jax.jit`."""

CUSTOM_RULES = frozenset(("custom_jvp_call", "custom_vjp_call"))
"""Functions of `jax.custom_jvp` and `jax.custom_vjp`."""

CALLS = dict.fromkeys(("closed_call", "eval_jaxpr", *CUSTOM_RULES), "call_jaxpr") | {"jit": "jaxpr", "remat2": "jaxpr"}
"""Primitives that only call a program, and the parameter that holds it; JAX 0.12 has no `closed_call`."""

HELD = {
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
    "scan": ("jaxpr",),
    "remat2": ("jaxpr",),
} | dict.fromkeys(CUSTOM_RULES, ("call_jaxpr",))
"""The parameters with programs that others of the same types may replace."""

LOOPS = frozenset(("scan", "while"))

PROMOTIONS = frozenset(("pvary",))
"""Changes of the mesh axes over which a value varies within `jax.shard_map`; the value stays."""

IDENTITIES = PROMOTIONS | {"copy"}
"""Primitives that return their operands."""

PLACEMENTS = frozenset(("reshard", "sharding_constraint"))
"""Primitives that say how an array is sharded."""

MESSAGES = frozenset(("all_to_all", "ppermute"))
"""Messages from device to device with elements of arrays."""

ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex conj
    convert_element_type copy cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma
    igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p log2 logistic lt lt_to max min mul mulhi
    ne neg nextafter not one_minus_square or polygamma population_count pow real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin
    sinh sqrt square stop_gradient sub tan tanh xor zeta""".split()
)
"""Primitives with one output whose every element depends on that element of the inputs."""

CHEAP = frozenset(
    """abs add add_any and ceil clamp complex conj convert_element_type copy eq eq_to floor ge gt imag is_finite
    le le_to lt lt_to max min mul ne neg not or population_count real reduce_precision round select_n shift_left
    shift_right_arithmetic shift_right_logical sign square stop_gradient sub xor""".split()
)
"""Elementwise primitives that XLA computes again rather than keep their results."""

SLOW = frozenset("cos erf exp exp2 expm1 log log1p logistic pow rsqrt sin sqrt tanh".split())
"""Elementwise primitives that take about as long as twenty additions."""

SUMS = frozenset(("add", "add_any"))

JUMPS = frozenset(
    """argmax argmin ceil eq ffi_call floor ge gt io_callback is_finite le le_to lt lt_to ne nextafter pure_callback rem
    round sign sort top_k""".split()
)
"""Primitives whose results may jump although their operands do not, or whose derivatives are unknown."""

ALONG_AXES = frozenset(("reduce_max", "reduce_min", "reduce_prod", "reduce_sum"))
"""Reductions over `axes`."""

ALONG_AXIS = frozenset(("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"))
"""Accumulations along `axis`."""

MOVES = frozenset(("concatenate", "dynamic_slice", "gather", "pad", "rev", "slice"))
"""Primitives by which a function reads its neighbours in an array."""

UPDATES = {"dynamic_update_slice": 1, "scatter": 2}
"""Updates of a part of an array, and the place of the update among the operands."""

CALLBACKS = frozenset(("debug_callback", "debug_print", "io_callback", "pure_callback"))
"""Calls of Python."""

KERNELS = frozenset(("core_map", "mosaic_gpu_p", "mpmd_map", "pallas_call", "tpu_custom_call", "triton_kernel_call"))
"""Kernels of Pallas, where JAX 0.12 has no `core_map`, of Mosaic, and of jax-triton."""
