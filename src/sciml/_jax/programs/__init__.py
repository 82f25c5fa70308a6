"""Readers of traced JAX programs: one walk, and one table of the names of primitives.

`evaluate` runs a program by a rule for each equation, over whatever values the rule takes: lanes, sets of elements,
numbers of elements, or arrays. `run_anew` traces loops and choices with other programs in them. `equations` visits all
equations of a program and of those within it. Everything else in sciml that reads a program is a rule of one of these.
"""

from ._evaluation import (
    array_of as array_of,
    evaluate as evaluate,
    run_anew as run_anew,
    run_equation as run_equation,
    with_programs as with_programs,
)
from ._reading import (
    depend_on as depend_on,
    equations as equations,
    from_outside as from_outside,
    is_literal as is_literal,
    makers as makers,
    parts_of_scan as parts_of_scan,
    parts_of_while as parts_of_while,
    program_called as program_called,
    programs_held as programs_held,
    programs_within as programs_within,
    reads as reads,
    scan_counts as scan_counts,
    used_inputs as used_inputs,
    with_constants_as_inputs as with_constants_as_inputs,
    without_unused as without_unused,
)
