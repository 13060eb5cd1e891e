"""The schedule of every fused function without a tuned template.

Fused functions are chains of TE stages: elementwise arithmetic, broadcasts, transposes, padding,
reductions, softmax. Producers are inlined, stages over the same rows share one parallel loop, and
each stage is vectorised along contiguous memory. A function that this module cannot improve is
returned unchanged: scheduling never fails.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import IRModule, tirx
from tvm.error import InternalError
from tvm.ir import TensorLoad
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ScheduleError
from tvm.s_tir.stmt import SBlockRealize
from tvm.sym import detect_linear_equation

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.schedules.estimates.shortcomings import UNSCHEDULED
from neocpu.schedules.operators.block_accesses import Stage, nodes_of, read_stage, size_of
from neocpu.schedules.operators.movement.permutation import lower_permutation, permutation_of
from neocpu.schedules.operators.stage_schedules import (
    VECTORS,
    merge_axes,
    schedule_reduction,
    split_contiguous,
    vector_factor,
)
from neocpu.schedules.tir.bfloat16 import round_casts
from neocpu.schedules.tir.builder import ENOUGH_TASKS, PARALLEL_ELEMENTS
from neocpu.schedules.tir.reductions import begin_with_infinities
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.target import CpuTarget

SCHEDULED = "tirx.is_scheduled"


#: The most loads and constants in an expression: inlining doubles values that are read twice.
MAX_LEAVES = 128
#: The deepest nesting in an expression (`block_accesses.Stage`): 8 take milliseconds, 16 minutes.
MAX_NESTING = 8


def schedule_function(func: tirx.PrimFunc, target: CpuTarget) -> tirx.PrimFunc:
    """Schedule a fused ``PrimFunc`` for ``target``; does nothing to a scheduled one.

    The loop nest of a chain of spatial stages, and of a softmax over rows::

        for outer in parallel:                     for row in parallel:
            for i in range(inner / lanes):             max[row], exp[...], sum[row]   # vectors
                out[...] = vector(lanes)               out[row, ...] = vector(lanes)

    The function is marked as scheduled. It is otherwise unchanged if no schedule applies
    (data-dependent control flow, calls of runtime functions, dynamic shapes); `UNSCHEDULED` then
    says why.
    """
    if func.attrs is not None and func.attrs.get(SCHEDULED, False):
        return func
    if not isinstance(func.body, SBlockRealize):
        return func.with_attrs({SCHEDULED: True, UNSCHEDULED: "it has no stages"})
    try:
        sch = Schedule(IRModule({"main": func}), error_render_level="none")
        moved = _permutation(sch, target)
        if moved is not None:
            return moved.with_attrs(dict(func.attrs or {}))
        obstacle = _obstacle(sch)
        sch = _parallel_stages(sch) if obstacle else _schedule(sch, target)
        scheduled = sch.mod["main"]
    except ScheduleError as error:
        scheduled, obstacle = func, f"TVM refuses it: {str(error).strip().splitlines()[-1]}"
    scheduled = begin_with_infinities(round_casts(vectorize_calls(scheduled)))
    scheduled = scheduled.with_attr(SCHEDULED, True)
    return scheduled.with_attr(UNSCHEDULED, obstacle) if obstacle else scheduled


def _permutation(sch: Schedule, target: CpuTarget) -> tirx.PrimFunc | None:
    """Return the kernel of a function that only transposes a tensor, if tiles pay."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    axes = permutation_of(sch.get(blocks[0])) if len(blocks) == 1 else None
    if axes is None:
        return None
    read = sch.get(blocks[0]).body.value.source
    return lower_permutation(tuple(map(int, read.shape)), axes, str(read.dtype), target)


def _parallel_stages(sch: Schedule) -> Schedule:
    """Make each stage's leading spatial loops parallel if they are known to be independent."""
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        name = sch.get(block).name_hint
        extents = [size_of(sch.get(loop).extent) for loop in sch.get_loops(block)]
        if extents and None not in extents:
            if math.prod(e for e in extents if e) >= PARALLEL_ELEMENTS:
                sch = _attempt(
                    sch, lambda trial, name=name: trial.parallel(trial.get_loops(name)[0])
                )
    return sch


def _obstacle(sch: Schedule) -> str:
    """Return the reason why stages cannot be scheduled; empty if they can."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    names = [str(sch.get(each).name_hint) for each in blocks if read_stage(sch, each) is None]
    if names:
        return f"its stage {names[0]} is no plain computation"
    return "" if blocks else "it has no stages"


def _stages(sch: Schedule) -> list[Stage]:
    """Return all stages in program order; none if one of them is not a plain computation."""
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    stages = [read_stage(sch, block) for block in blocks]
    return [] if None in stages else [stage for stage in stages if stage is not None]


def _schedule(sch: Schedule, target: CpuTarget) -> Schedule:
    _inline_producers(sch)
    stages = _stages(sch)
    if len(stages) == 1:
        sch = _attempt(
            sch, lambda trial: merge_axes(trial, stages[0], target.lanes(stages[0].dtype))
        )
    sch = _attempt(sch, lambda trial: _split_rows(trial, target))
    names = [stage.name for stage in _stages(sch)]
    shared, sch = _share_rows(sch)
    if shared:
        shared, sch = _fuse_rows(sch, names, shared)
    for name in names:
        sch = _attempt(sch, lambda trial, name=name: _schedule_stage(trial, name, shared, target))
    return sch


def _attempt(sch: Schedule, step: Any) -> Schedule:
    """Return a copy of ``sch`` after ``step``, or ``sch`` itself if the step is not possible."""
    trial = sch.copy()
    try:
        step(trial)
    except (ScheduleError, InternalError):
        return sch
    return trial


def _inline_producers(sch: Schedule) -> None:
    """Inline each producer that is read once or is cheap to recompute."""
    for block in list(sch.get_child_blocks(sch.get_sblock("root"))):
        stage = read_stage(sch, block)
        readers = sch.get_consumers(block)
        consumers = [read_stage(sch, reader) for reader in readers]
        if stage is None or stage.is_reduction or not consumers or None in consumers:
            continue
        pairs = [(r, c) for r, c in zip(readers, consumers, strict=True) if c is not None]
        if any(_too_complex(sch, block, stage, reader, consumer) for reader, consumer in pairs):
            continue
        if _reads_digits(sch, block) and any(_counts_down(sch, block, r) for r in readers):
            continue
        reads = sum(consumer.volume for _, consumer in pairs)
        reduced = any(consumer.is_reduction for _, consumer in pairs)
        # A condition inside a reduction costs a branch per step; a copy costs one pass.
        cheap = not stage.expensive and not (reduced and stage.conditions)
        if cheap or (len(pairs) == 1 and reads <= stage.volume):
            try:
                sch.compute_inline(block)
            except ScheduleError:
                continue


def _too_complex(sch: Schedule, block: Any, stage: Stage, reader: Any, consumer: Stage) -> bool:
    """Return whether ``reader`` with ``block`` inlined would keep TVM busy for minutes."""
    buffer = sch.get(block).body.buffer
    loads = nodes_of(sch.get(reader).body.value, TensorLoad)
    copies = sum(load.source.same_as(buffer) for load in loads)
    leaves: int = consumer.leaves + copies * stage.leaves
    nesting: int = consumer.nesting + copies * stage.nesting
    return leaves > MAX_LEAVES or nesting > MAX_NESTING


def _reads_digits(sch: Schedule, block: Any) -> bool:
    """Return whether ``block`` reads at quotients and remainders, as a reshape does."""
    return bool(nodes_of(sch.get(block).body.value, (tirx.FloorDiv, tirx.FloorMod)))


def _counts_down(sch: Schedule, block: Any, reader: Any) -> bool:
    """Return whether ``reader`` reads the result of ``block`` backwards, as a flip does.

    With ``i = c - v``, TVM (0.27) simplifies ``i // 72 * 72 + i % 72 // 12 * 12 + …`` to another
    number than ``i``: `MergeMulMod` returns the remainder's dividend, which has lost multiples of
    72.
    """
    buffer, variables = sch.get(block).body.buffer, [v.var for v in sch.get(reader).iter_vars]
    loads = nodes_of(sch.get(reader).body.value, TensorLoad)
    read = (index for load in loads if load.source.same_as(buffer) for index in load.indices)
    factors = (each for index in read for each in detect_linear_equation(index, variables)[:-1])
    return any(isinstance(factor, tirx.IntImm) and int(factor) < 0 for factor in factors)


def _split_rows(sch: Schedule, target: CpuTarget) -> None:
    """Give every reduction along contiguous memory a vector of partial results."""
    for stage in _stages(sch):
        if stage.is_reduction:
            split_contiguous(sch, stage, target.lanes(stage.dtype))


def _share_rows(sch: Schedule) -> tuple[int, Schedule]:
    """Compute stages, without recomputation, in the last one's outer loops; return how many."""
    stages = _stages(sch)
    if len(stages) < 2 or not any(stage.is_reduction for stage in stages):
        return 0, sch
    last = stages[-1]
    largest = max(stage.volume for stage in stages)
    volumes = {stage.name: stage.volume for stage in stages}
    for depth in range(len(last.extents), 0, -1):
        trial = sch.copy()
        row = trial.get_loops(trial.get_sblock(last.name))[depth - 1]
        try:
            for stage in reversed(stages[:-1]):
                trial.compute_at(trial.get_sblock(stage.name), row)
        except ScheduleError:
            continue
        moved = [read_stage(trial, trial.get_sblock(stage.name), depth) for stage in stages]
        if any(stage is None or stage.volume > volumes[stage.name] for stage in moved):
            continue
        heavy = [s for s in moved if s is not None and s.volume * 4 >= largest]
        before = {stage.name: stage for stage in stages}
        if all(s.vector_extent >= min(before[s.name].vector_extent, 16) for s in heavy):
            return depth, trial
    return 0, sch


def _fuse_rows(sch: Schedule, names: list[str], shared: int) -> tuple[int, Schedule]:
    """Fuse the shared loops into one, parallel if worthwhile; return the number of loops left."""
    volume = max(
        math.prod(
            size_of(sch.get(loop).extent) or 1 for loop in sch.get_loops(sch.get_sblock(name))
        )
        for name in names
    )
    if volume < PARALLEL_ELEMENTS:
        return shared, sch

    def fuse(trial: Schedule) -> None:
        trial.parallel(trial.fuse(*trial.get_loops(trial.get_sblock(names[-1]))[:shared]))

    fused = _attempt(sch, fuse)
    return (shared, sch) if fused is sch else (1, fused)


def _schedule_stage(sch: Schedule, name: str, shared: int, target: CpuTarget) -> None:
    stage = read_stage(sch, sch.get_sblock(name), shared)
    if stage is not None:
        schedule = schedule_reduction if stage.is_reduction else _schedule_spatial
        schedule(sch, stage, target.lanes(stage.dtype), parallel=not shared)


def _schedule_spatial(sch: Schedule, stage: Stage, lanes: int, parallel: bool) -> None:
    """Schedule a stage without a reduction::

    for outer in parallel:                 # leading loops, enough for the threads
        for rest:
            for i in range(inner / width): # trailing loops that every access walks in order
                vector(width)
    """
    loops = list(sch.get_loops(sch.get_sblock(stage.name)))[stage.shared_loops :]
    parallel = parallel and stage.volume >= PARALLEL_ELEMENTS
    if not loops:
        return
    start = _inner_start(stage, VECTORS * lanes)
    if start is not None and stage.dtype == BFLOAT16 and stage.is_constant_from(start):
        # TVM (0.27) cannot broadcast a number to a vector whose bits stand for bfloat16.
        _parallel_outer(sch, loops, stage.extents, parallel)
        return
    if start is None:
        if stage.vectorizable_last and stage.extents[-1] <= VECTORS * lanes:
            sch.vectorize(loops[-1])
        _parallel_outer(sch, loops[:-1], stage.extents, parallel)
        return
    extent = math.prod(stage.extents[start:])
    inner = sch.fuse(*loops[start:])
    outer = loops[:start]
    if extent <= VECTORS * lanes:
        if extent > 1:
            sch.vectorize(inner)
        _parallel_outer(sch, outer, stage.extents, parallel)
        return
    full = [count * lanes for count in range(1, VECTORS + 1)]
    width = max((each for each in full if extent % each == 0), default=0)
    width = width or vector_factor(extent, lanes)
    vectors, vector = sch.split(inner, [None, max(width, lanes)])
    sch.vectorize(vector)
    if width == 1:
        # The last, partial vector is split off, so that the others need no condition.
        sch.annotate(vectors, "pragma_loop_partition_hint", 1)
    elif math.prod(stage.extents[:start]) < ENOUGH_TASKS:
        if parallel:
            sch.parallel(sch.fuse(*outer, vectors))
        return
    _parallel_outer(sch, outer, stage.extents, parallel)


def _inner_start(stage: Stage, widest: int) -> int | None:
    """Return the first of the trailing loops to fuse; None if not even the last is contiguous.

    They are fused as far as one wide vector reaches. A longer fused loop would have to be split,
    and TVM does not see that the pieces of its quotients and remainders are consecutive.
    """
    last = len(stage.extents) - 1
    while last > 0 and stage.extents[last] == 1:
        last -= 1
    if not stage.contiguous_from(last):
        return None
    start = last
    for s in range(last - 1, -1, -1):
        unit = all(extent == 1 for extent in stage.extents[s:start])
        if not stage.contiguous_from(s) or (math.prod(stage.extents[s:]) > widest and not unit):
            break
        start = s
    return start


def _parallel_outer(
    sch: Schedule, loops: list[Any], extents: tuple[int, ...], parallel: bool
) -> None:
    """Run the fewest leading loops that make enough tasks in parallel, unless there is only one."""
    if not parallel or math.prod(extents[: len(loops)]) == 1:
        return
    count = 1
    while count < len(loops) and math.prod(extents[:count]) < ENOUGH_TASKS:
        count += 1
    sch.parallel(sch.fuse(*loops[:count]))
