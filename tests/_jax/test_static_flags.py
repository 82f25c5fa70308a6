"""Truth values and numbers as shapes of small arrays."""

import jax

from sciml._jax._static_flags import as_shapes, number_as_shape, number_of_shape, of_shapes


def test_they_come_back_and_no_array_is_empty_or_large():
    flags = (True, False, True)
    made = as_shapes(flags)
    assert of_shapes(made) == flags
    assert all(0 < x.size <= 2 for x in jax.tree.leaves(made))
    for number in (0, 1, 16):
        assert number_of_shape(number_as_shape(number)) == number


def test_other_axes_after_the_first_do_not_matter():
    assert number_of_shape(number_as_shape(5)[:, None]) == 5
