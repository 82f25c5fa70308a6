"""Truth values and numbers as shapes of small arrays."""

import jax

from sciml._jax._static_flags import as_shapes, numbers_as_shapes, numbers_of_shapes, of_shapes


def test_they_come_back_and_no_array_is_empty_or_large():
    flags, numbers = (True, False, True), (0, 1, 15, 16, 1_000_003)
    made = as_shapes(flags), numbers_as_shapes(numbers)
    assert of_shapes(made[0]) == flags and numbers_of_shapes(made[1]) == numbers
    assert all(0 < x.size <= 16 for x in jax.tree.leaves(made))


def test_other_axes_after_the_first_do_not_matter():
    arrays = jax.tree.map(lambda x: x[:, None], numbers_as_shapes((300,)))
    assert numbers_of_shapes(arrays) == (300,)
