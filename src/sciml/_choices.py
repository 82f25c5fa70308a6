"""The table of choices: every number that selects an engine, a loop, a matrix format or a program.

A choice changes how fast a program runs or compiles, or how much memory it needs. It does not change the method, so
results differ at most by rounding. Constants of numerical methods, such as safety factors, are in the files of the
methods.
"""

import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import jax


def _choice(default: Any, unit: str, reason: str, benchmark: str = "") -> Any:
    """Returns a field of the table.

    Args:
        default: Its value.
        unit: The unit of the value.
        reason: The effect of the choice.
        benchmark: The benchmark whose numbers set the value, `python -m benchmarks NAME`; empty if none is recorded.
    """
    return dataclasses.field(default=default, metadata=dict(unit=unit, reason=reason, benchmark=benchmark))


@dataclasses.dataclass(frozen=True)
class LaneChoices:
    """Lanes: a program of one member becomes a program of many."""

    unstacked_at_most: int = _choice(16, "elements", "Larger arrays are not split into one array for each element.")
    unstacked_alone_at_most: int = _choice(
        8,
        "elements",
        "The same for a single member whose vector field works on whole arrays: it compiles three times as fast.",
        "first_results",
    )
    stay_unstacked_at_most: int = _choice(
        128, "elements", "Values computed only from split arrays stay split up to this size."
    )
    unstacked_again_at_most: int = _choice(
        4, "elements", "Results of large arrays are split again up to this size: the output of a network, not a layer."
    )
    computed_twice_at_most: int = _choice(
        5, "elements", "Smaller values of a single member are faster to compute twice than to keep behind a barrier."
    )
    unrolled_iterations_at_most: int = _choice(32, "iterations", "Longer scans stay scans.")
    unrolled_operations_at_most: int = _choice(4096, "operations", "Scans of more operations in total stay scans.")
    unrolled_alone_at_most: int = _choice(4096, "operations", "The same for a single member.", "first_results")
    products_at_most: int = _choice(
        48, "multiplications", "A matrix product with more multiplications stays a matrix product."
    )
    fusion_from: int = _choice(32, "operations", "Fewer operations do not get a fusion of their own.")
    fusion_ends_from: int = _choice(
        2200,
        "operations",
        "A fusion of this length ends at the next barrier: the compile time grows with the square of the length.",
    )
    fusion_at_most: int = _choice(2500, "operations", "A fusion of this length ends anywhere.")
    tangents_unfused_at_most: int = _choice(
        200, "operations", "XLA fuses the forward-mode derivative of a shorter program well enough."
    )
    merged_at_most: int = _choice(
        1024,
        "elements",
        "Alike operations on single numbers become one operation on an array if all arrays are at most this large: "
        "places of numbers are looked up one by one.",
        "first_results",
    )
    merged_pieces_at_most: int = _choice(
        4, "pieces", "Numbers from more pieces of arrays are gathered, not concatenated.", "first_results"
    )
    scalar_at_most: int = _choice(
        8, "members", "Vectorisation does not pay off for this many members or fewer.", "gate"
    )


@dataclasses.dataclass(frozen=True)
class BatchChoices:
    """Batches: over lanes or one after another."""

    one_by_one_from: int = _choice(
        1024,
        "elements of a state",
        "On a CPU, members with larger states run one after another: over lanes, nothing stays in the cache.",
        "field_ensemble",
    )
    cpu_block: tuple[int, ...] = _choice(
        (32, 512), "members", "Minimum and maximum size of a block of a sweep; between them a sweep has eight blocks."
    )
    accelerator_block: tuple[int, ...] = _choice((1024, 16384), "members", "The same on an accelerator.")
    spare_lanes: int = _choice(
        12, "members for each added lane", "Alignment adds at most one lane for this many members."
    )
    packed_from: int = _choice(
        33,
        "small leaves",
        "States with this many small leaves are packed into one array for each dtype: the compile time grows "
        "with the square of their number.",
    )


@dataclasses.dataclass(frozen=True)
class FieldChoices:
    """Vector fields: programs of one evaluation."""

    barrier_from: int = _choice(
        1024,
        "elements",
        "Larger arrays of neighbours, and of noise, are computed once for a stage: XLA would compute them again for "
        "each use.",
        "noise",
    )
    stages_in_loop_from: int = _choice(
        300,
        "operations",
        "On a CPU, the stages of a longer field that reads neighbours or works on arrays are evaluated in a loop, "
        "which compiles up to five times as fast.",
        "first_results",
    )
    compared_at_most: int = _choice(
        64, "samples", "A held input compares the time with every sample up to this number, and searches beyond it."
    )
    constants_at_most: int = _choice(128, "elements", "Larger arrays are operands of the program, not constants.")
    sum_terms_at_most: int = _choice(
        32,
        "terms",
        "Sums over reactions are added term by term up to this number; an enzyme may take part in thousands.",
    )
    whole_constants_at_most: int = _choice(2**20, "elements", "The same for integers, which may describe the sparsity.")


@dataclasses.dataclass(frozen=True)
class LoopChoices:
    """While loops: steps until the last member is done."""

    two_steps_from: int = _choice(
        1024, "members", "On a CPU, an iteration tries two steps for this many members or more, which avoids copies."
    )
    two_steps_work_at_most: int = _choice(
        400, "operations of a field", "An iteration tries two steps only if they are cheaper than this."
    )
    branch_work: int = _choice(
        10_000, "operations for each result", "Estimated cost of a loop or a branch within a field."
    )


@dataclasses.dataclass(frozen=True)
class CompactionChoices:
    """Compaction: the last members continue over fewer lanes."""

    members_from: int = _choice(2048, "members", "For fewer members the move costs as much as it saves.")
    share: int = _choice(4, "members for each one that moves", "The members move when one in this many is left.")
    lanes_multiple: int = _choice(16, "lanes", "The number of lanes is a multiple of this: whole vectors of any dtype.")
    segment_lanes_from: int = _choice(
        16, "lanes", "Long runs with fewer lanes are not compacted: it requires another compilation."
    )


@dataclasses.dataclass(frozen=True)
class RefillChoices:
    """Refill: fewer lanes than members."""

    lanes_at_least: int = _choice(64, "lanes", "With fewer lanes the loop costs more than the steps.")
    members_of_lane: int = _choice(32, "members", "Every lane takes up this many, so that the last ones end together.")
    cache: int = _choice(2**18, "bytes", "States and stages of all lanes fit into this part of a core's cache.")
    waiting_share: int = _choice(
        8, "lanes for each one that waits", "A refill costs about as much as a step, so this share of lanes may wait."
    )
    steps_at_once: int = _choice(4, "steps", "Number of cheap steps between two checks for finished lanes.")
    block_lanes: int = _choice(16, "members for each lane", "Size of a block of a refilled sweep.")


@dataclasses.dataclass(frozen=True)
class SaveChoices:
    """Saved times: members wait for each other, or do not."""

    step_work: int = _choice(
        1000,
        "operations for each number of a state",
        "Members do not wait for each other at saved times if a step is more expensive than this.",
    )
    iteration_work: int = _choice(
        50_000, "operations", "Overhead of an iteration on an accelerator, where the host starts each of them."
    )
    recorded_iteration_work: int = _choice(
        300_000, "operations", "Overhead of an iteration on a CPU in the two passes of a gradient."
    )
    recorded_one_call_at_most: int = _choice(
        128, "bytes of all members", "Gradients of smaller states run as a single call, without this overhead."
    )
    rows_of_step_at_most: int = _choice(
        8, "saved times", "Fixed steps with more saved times within one step do not write rows in their loop."
    )
    weights_at_most: int = _choice(2**18, "numbers", "Nor do they if the interpolation weights exceed this size.")
    lengths_at_most: int = _choice(
        8, "different lengths", "Stencil kernels do not run segments of more lengths: each is compiled separately."
    )


@dataclasses.dataclass(frozen=True)
class EventChoices:
    """Events: steps that may contain an event are gathered."""

    gather_from: int = _choice(
        1024, "members", "With fewer members, a step of all members is cheaper than gathering some of them."
    )
    gather_noisy_from: int = _choice(
        512, "members", "The same for equations with noise, whose steps locate an event immediately.", "noise"
    )
    gather_share: int = _choice(32, "members for each one gathered", "Number of lanes of a gathering.")
    gather_tries: int = _choice(2, "attempts", "Number of attempts before a lane waits for the next gathering.")
    step_work_at_most: int = _choice(
        5000, "operations", "Steps that are more expensive are not taken a second time, so they are not gathered."
    )


@dataclasses.dataclass(frozen=True)
class CheckpointChoices:
    """Checkpoints: memory of gradients."""

    memory: int = _choice(2**28, "bytes", "Default memory of `Checkpointed`, for all members together.")
    levels_at_most: int = _choice(8, "levels", "More levels save little memory, and each makes the program longer.")
    zeroed_at_most: int = _choice(
        2**24, "bytes", "Records are zeroed before use: larger ones take longer than most steps recorded in them."
    )
    records_at_most: int = _choice(1024, "steps", "Maximum number of step records for each member.")
    expensive_from: int = _choice(
        64,
        "bytes of a state",
        "Steps of implicit methods are expensive from this size on, compared with their records.",
    )
    expensive_records: int = _choice(
        256, "steps", "Number of records of expensive steps; twice as many if they fit into `zeroed_at_most`."
    )
    iterations_at_least: int = _choice(16, "iterations", "Minimum length of a segment that is computed again.")
    at_least: int = _choice(16, "checkpoints", "Minimum number of records and of checkpoints.")
    factors_at_most: int = _choice(2**27, "bytes", "Matrix factors in all checkpoints use at most this memory.")
    like_one_at_most: int = _choice(
        2**31, "bytes", "Maximum size of the records of all members if each must have the shape for one member."
    )
    checked_from: int = _choice(
        2**16,
        "bytes of a state",
        "JAX differentiates longer fixed steps in segments of two: longer segments are copied.",
    )
    continuous: int = _choice(32, "checkpoints", "Number of checkpoints of the continuous adjoints.")
    dense_rows_at_least: int = _choice(
        64, "steps", "Minimum number of steps of dense output in a segment, if the memory allows it."
    )
    nodes: int = _choice(2**21, "bytes", "Quadrature nodes that `Gauss` evaluates at once.")
    nodes_steps_at_most: int = _choice(32, "steps", "The same as a number of steps.")
    columns_work_at_most: int = _choice(
        16_000,
        "operations",
        "`Forward` over lanes takes a step and all its derivatives as one program up to this length.",
    )


@dataclasses.dataclass(frozen=True)
class MatrixChoices:
    """Linear systems: formats of matrices."""

    small_at_most: int = _choice(8, "rows", "Small matrices are eliminated entry by entry.", "compile_time")
    sparse_at_most: int = _choice(
        16, "rows", "Sparse matrices are eliminated entry by entry up to this size.", "compile_time"
    )
    written_out_products_at_most: int = _choice(
        700,
        "multiplications",
        "Longer eliminations are not written out: with twice as many, a gradient compiles for half a minute.",
        "compile_time",
    )
    stages_written_out_at_most: int = _choice(
        16, "rows", "With small matrices, the stages of a Rosenbrock method are written out, not a loop."
    )
    stages_alone_at_most: int = _choice(
        16,
        "rows",
        "The same for a single member: a loop compiles in half of the time, and takes one and a half times as long.",
        "first_results",
    )
    inverse_at_most: int = _choice(3, "rows", "Small blocks are inverted entry by entry.")
    positive_at_most: int = _choice(
        4, "rows", "Small positive definite systems of posteriors and Lagrangians are eliminated entry by entry."
    )
    lanes_rows_at_most: int = _choice(64, "rows", "Larger matrices of many members are factorised by LAPACK.")
    lanes_from: int = _choice(16, "members", "LAPACK is as fast for fewer members.")
    lanes_panel_at_most: int = _choice(
        16, "columns", "Width of a panel over lanes: narrower panels make a longer program."
    )
    band_at_most: int = _choice(12, "off-diagonal entries", "Narrow bands are eliminated by cyclic reduction.")
    band_blocks_at_least: int = _choice(6, "blocks", "Shorter narrow bands are not eliminated as bands.")
    wide_band_lengths: int = _choice(
        5, "widths", "Wide bands that are shorter than this are dense matrices.", "stiff_groups"
    )
    wide_band_from: int = _choice(200, "unknowns", "Smaller wide bands are dense matrices.", "stiff_groups")
    iteration_from: int = _choice(
        600,
        "unknowns",
        "Methods that specify the accuracy of their systems may solve large fields by an iteration.",
        "stiff_fields",
    )
    iteration_of_all_from: int = _choice(
        4000, "unknowns", "All methods may solve such systems by an iteration.", "contest"
    )
    factorisation_at_most: float = _choice(
        2e8,
        "unknowns times the square of the band",
        "More expensive factorisations, of about a second, are replaced by an iteration.",
        "contest",
    )
    row_entries_at_most: int = _choice(64, "entries of a row", "Matrices with more entries are not solved iteratively.")
    colours_at_most: int = _choice(40, "colours", "More colours would make the program of an incomplete LU long.")
    cyclic_columns_at_least: int = _choice(
        100, "columns", "Cyclic reduction of fewer blocks is a loop, which compiles faster."
    )
    cyclic_rounds_at_most: int = _choice(5, "rounds", "Each round of cyclic reduction is compiled separately.")
    cyclic_large_rounds_at_most: int = _choice(3, "rounds", "The same for large blocks.")
    cyclic_large_from: int = _choice(4, "rows of a block", "Size of a large block.")
    entries_from: int = _choice(48, "directions", "Jacobians that need more directions may be computed entry by entry.")
    entries_terms_at_most: int = _choice(5_000_000, "terms", "More terms would take long to read.")
    entries_term_work: int = _choice(8, "operations", "Cost of a term, which is read, multiplied and added.")
    directions_at_once: int = _choice(
        2**16, "numbers", "Directions of a Jacobian are evaluated in groups of this size, which limits the memory."
    )
    directions_at_least: int = _choice(16, "directions", "Minimum number of directions of a group.")
    history_together_from: int = _choice(
        5, "unknowns", "`BDF` stores its history of larger systems in one array, which halves the program."
    )
    pattern_entries_at_most: int = _choice(20_000_000, "entries", "Larger sparsity patterns are treated as dense.")
    pattern_unrolled_at_most: int = _choice(
        64, "iterations", "The iterations of a longer scan share one sparsity pattern."
    )
    pattern_rounds_at_most: int = _choice(12, "rounds", "Maximum number of passes over a loop to find its pattern.")
    pattern_known_at_most: int = _choice(1_000_000, "elements", "Values of larger constants are not followed.")


@dataclasses.dataclass(frozen=True)
class KrylovChoices:
    """Krylov: iterations for linear systems."""

    vectors: int = _choice(30, "vectors", "Restart of GMRES if `linear_solver=` does not set it.")
    products_at_most: int = _choice(300, "products", "Maximum number of products if `linear_solver=` does not set it.")
    products_without: int = _choice(
        60,
        "products",
        "Number of products before a preconditioner is computed, which costs about as many.",
        "stiff_fields",
    )


@dataclasses.dataclass(frozen=True)
class StiffChoices:
    """Stiff choice: the method of a solve without `solver=`."""

    probed_from: int = _choice(
        256,
        "unknowns",
        "The largest eigenvalue is estimated first: smaller states finish in that time.",
        "default_solver",
    )
    bdf_from: int = _choice(
        200, "unknowns", "`BDF` is faster than `Rodas5P` with larger dense Jacobians.", "default_solver"
    )
    stabilised_steps_at_most: int = _choice(
        1000,
        "steps",
        "Diffusion that only multigrid solves is integrated by `ROCK` or `RKC2`, which compile three times as fast as "
        "`ARK`; not if more steps than this are needed with all of their stages. Three fields take equal times for "
        "360, 860 and 5,700 steps.",
        "default_solver",
    )


@dataclasses.dataclass(frozen=True)
class EllipticChoices:
    """Elliptic problems."""

    direct_at_most: int = _choice(
        64, "unknowns", "The coarsest grid of multigrid has at most this size: it is solved by an inverse matrix."
    )


@dataclasses.dataclass(frozen=True)
class CallChoices:
    """Calls from Python."""

    remembered: int = _choice(256, "calls", "More decided calls are all forgotten, which costs a millisecond each.")
    looks: int = _choice(400, "checks", "Number of checks for a result before the thread sleeps, some 10 microseconds.")
    compared_bytes_at_most: int = _choice(
        2**20,
        "bytes",
        "Functions that read larger NumPy arrays are not compared: that takes longer than a millisecond.",
    )


@dataclasses.dataclass(frozen=True)
class RunChoices:
    """Long runs."""

    frames: int = _choice(2**24, "bytes", "Size of saved frames on the device, and of a block on disk.")
    frames_at_most: int = _choice(4096, "frames", "Maximum number of frames on the device, and in a block on disk.")
    steps_at_least: int = _choice(16, "steps", "Minimum number of steps in a compiled segment.")
    steps_at_most: int = _choice(2**16, "steps", "Maximum number of steps in a compiled segment.")
    stencil_steps_at_most: int = _choice(64, "steps", "More steps in one kernel call would hardly save launches.")


@dataclasses.dataclass(frozen=True)
class KernelChoices:
    """Kernels: limits and tiles."""

    state_at_most: int = _choice(256, "numbers", "An ensemble kernel carries at most this state: registers run out.")
    inputs_at_most: int = _choice(512, "numbers", "Maximum size of the inputs of a member.")
    operands_at_most: int = _choice(64, "numbers", "Maximum size of a parameter that all cells share.")
    gpu_tiles: int = _choice(528, "tiles", "Number of tiles that keep a GPU busy, four for each processor.")
    gpu_loads: int = _choice(4, "rows", "Rows of global memory that a warpgroup waits for at once.")
    gpu_warpgroups: int = _choice(4, "warpgroups", "A block of this size hides the latency of shared memory.", "gpu")
    gpu_registers: int = _choice(160, "registers of a thread", "Estimated registers that the planes of a tile may use.")
    volumes_rows: tuple[int, ...] = _choice((32, 16, 8), "rows", "Heights of a GPU's tile, in the order of trial.")
    volumes_tiles: int = _choice(264, "tiles", "Tiles that keep a GPU busy, two for each processor.")
    volumes_planes: int = _choice(16, "planes", "Number of planes that a block sweeps in three dimensions.")
    tpu_rows: int = _choice(16, "rows", "Height of a TPU's block of finite volumes.")
    tpu_columns: int = _choice(256, "columns", "Width of this block.")
    tpu_memory: int = _choice(8 * 2**20, "bytes", "Vector memory of a strip: half of the smallest TPU's.")


@dataclasses.dataclass(frozen=True)
class Choices:
    """The table; `choose` replaces entries by their names, such as `"events.gather_from"`.

    Attributes:
        lanes: How a program of one member becomes a program of many.
        batching: The kinds of batches that run over lanes.
        fields: How a vector field is compiled.
        loops: How a loop until the last member is done runs.
        compaction: When the last members continue over fewer lanes.
        refill: How lanes are refilled.
        saves: How states are saved at given times.
        events: When steps with events are gathered.
        checkpoints: The memory of a gradient.
        linear: The formats of matrices.
        krylov: The iterations for linear systems.
        stiff: The method of a solve that is given none.
        elliptic: How elliptic problems are solved.
        calls: How repeated calls from Python are remembered.
        runs: The blocks of long runs.
        kernels: The limits and tiles of kernels.
    """

    lanes: LaneChoices = LaneChoices()
    batching: BatchChoices = BatchChoices()
    fields: FieldChoices = FieldChoices()
    loops: LoopChoices = LoopChoices()
    compaction: CompactionChoices = CompactionChoices()
    refill: RefillChoices = RefillChoices()
    saves: SaveChoices = SaveChoices()
    events: EventChoices = EventChoices()
    checkpoints: CheckpointChoices = CheckpointChoices()
    linear: MatrixChoices = MatrixChoices()
    krylov: KrylovChoices = KrylovChoices()
    stiff: StiffChoices = StiffChoices()
    elliptic: EllipticChoices = EllipticChoices()
    calls: CallChoices = CallChoices()
    runs: RunChoices = RunChoices()
    kernels: KernelChoices = KernelChoices()


_TABLE = Choices()

_CHANGED = jax.make_user_context(None)
"""The table of a block, None outside of any. It is part of the key of every program that JAX has compiled."""


def choices() -> Choices:
    """Returns the table in force."""
    return _CHANGED.value or _TABLE


def changed_choices() -> Choices | None:
    """Returns the table in force where it is not the library's own, which caches of decisions have in their keys."""
    return _CHANGED.value


def choices_of_one(on_arrays: bool) -> contextlib.AbstractContextManager:
    """Returns a block with the table for a single member, whose arrays have no lanes.

    Args:
        on_arrays: Whether most operations of its vector field are on arrays, not on single numbers.
    """
    table = choices()
    lanes, linear = table.lanes, table.linear
    most = min(lanes.unrolled_operations_at_most, lanes.unrolled_alone_at_most)
    small = min(lanes.unstacked_at_most, lanes.unstacked_alone_at_most) if on_arrays else lanes.unstacked_at_most
    stages = min(linear.stages_written_out_at_most, linear.stages_alone_at_most)
    lanes = dataclasses.replace(lanes, unrolled_operations_at_most=most, unstacked_at_most=small)
    linear = dataclasses.replace(linear, stages_written_out_at_most=stages)
    table = dataclasses.replace(table, lanes=lanes, linear=linear)
    return _CHANGED(None if table == _TABLE else table)


_PRESETS: dict[str, Mapping[str, float | tuple[int, ...]]] = {
    "small": {"linear.stages_alone_at_most": 4, "lanes.unrolled_alone_at_most": 1024},
}
"""Sets of changes with names of their own."""


@contextlib.contextmanager
def choose(changes: Mapping[str, float | tuple[int, ...]] | str) -> Iterator[Choices]:
    """Replaces entries of the table of choices within a block.

    The table contains every threshold that selects an engine, a loop, a matrix format or a program; the guide
    "Choices" lists it. Programs are compiled for the table of their block. Both passes of a gradient must be in the
    same block. Threads and processes that start within it use the library's own table.

    Args:
        changes: Values by name, such as `{"events.gather_from": 100}`; or `"small"` for programs that compile faster
            and run slower: a gradient of a stiff system of eight unknowns compiles in half of the time, and runs one
            and a half times as long.

    Yields:
        The table within the block.

    Raises:
        ValueError: If a name is not in the table, or a value is negative.
        TypeError: If a value does not have the type of the default.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml import inspect

        def end(rate):
            return sciml.solve(lambda t, y, args: -rate * y, jnp.ones(3), t0=0.0, t1=1.0).ys

        rates = jnp.linspace(1.0, 2.0, 4)
        with inspect.choose({"batching.one_by_one_from": 2}):  # states of two elements or more
            found = jax.vmap(end)(rates)
        assert jnp.allclose(found, jax.vmap(end)(rates))
        ```
    """
    table = choices()
    if isinstance(changes, str) and changes not in _PRESETS:
        raise ValueError(
            f"`choose` knows no set of changes {changes!r}: write one of {', '.join(map(repr, _PRESETS))}."
        )
    for name, value in (_PRESETS[changes] if isinstance(changes, str) else changes).items():
        group, _, entry = name.partition(".")
        known = getattr(getattr(table, group, None), entry, None)
        if known is None:
            near = difflib.get_close_matches(name, names(), 1)
            raise ValueError(f"There is no choice {name!r}" + (f": write {near[0]!r}." if near else "."))
        numbers = value if isinstance(value, tuple) else (value,)
        kinds = (int, float) if isinstance(known, float) else (int,)
        if isinstance(value, tuple) != isinstance(known, tuple) or not all(type(x) in kinds for x in numbers):
            raise TypeError(f"{name!r} must be like its default, {known!r}, but is {value!r}.")
        if not numbers or min(numbers) < 0:
            raise ValueError(f"{name!r} must not be negative, but is {value!r}.")
        table = dataclasses.replace(table, **{group: dataclasses.replace(getattr(table, group), **{entry: value})})
    with _CHANGED(None if table == _TABLE else table):
        yield table


def value_of(name: str) -> Any:
    """Returns the value of an entry in force."""
    group, entry = name.split(".")
    return getattr(getattr(choices(), group), entry)


def reason_of(name: str) -> str:
    """Returns the unit of an entry and its reason."""
    group, entry = name.split(".")
    about = type(getattr(_TABLE, group)).__dataclass_fields__[entry].metadata
    return f"{about['unit']}. {about['reason']}"


def names() -> list[str]:
    """Returns the names of all choices."""
    return [
        f"{group.name}.{entry.name}"
        for group in dataclasses.fields(Choices)
        for entry in dataclasses.fields(group.type)  # type: ignore[arg-type]
    ]
