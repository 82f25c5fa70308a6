"""A model written for one member, evaluated over many members in a last axis: the engine under `jax.vmap` of a solve.

- `Lanes`: runs a member's function over lanes.
- `Unbatched`: the same interface for one member as it is.
- `batched`: makes `jax.vmap` of a function one call over lanes.
- `differentiable`: the same for a function with a rule of reverse mode.
- `is_value`: tells lane values, which are leaves as far as a member's PyTrees are concerned.
- `with_alike_merged`: a function's value, by few operations on arrays instead of many on single numbers.
- `fallbacks`: which parts of a function do not run element by element, and why; public as `sciml.inspect.fallbacks`.
"""

from ..._jax._batched import batched as batched
from ..._jax._differentiable import differentiable as differentiable
from ._alike import with_alike_merged as with_alike_merged
from ._interpret import is_value as is_value
from ._lanes import Lanes as Lanes, Unbatched as Unbatched, fallbacks as fallbacks
