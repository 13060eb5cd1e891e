"""ONNX's NonMaxSuppression: per image and class, the best boxes that overlap no better one.

The number of selected boxes is only known afterwards, so the kernel writes as many rows as there
could be (`NonMaxSuppressionWorkload.rows`) and how many of them count. The others are zeros: as
indices they name the first box of the first class, which exists, so nothing reads out of bounds
afterwards.

The arithmetic is ONNX Runtime's, operation by operation, so that both select the same boxes. Code
generation may contract a product and a sum into one instruction that rounds once, so products are
fenced off before a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.compact import clipped
from neocpu.schedules.operators.ranking.radix_sort import add, emit_sort, entry, index_of, variable
from neocpu.schedules.tir.builder import build_kernel, span, splat, task_loop
from neocpu.schedules.vocabulary.layout import ceil_div

# The number of selected boxes compared at a time: a vector of AVX-512, two of AVX2, four of NEON.
GROUP = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NonMaxSuppressionWorkload:
    """A NonMaxSuppression over ``(batch, boxes, 4)`` boxes and ``(batch, classes, boxes)`` scores.

    - `max_output`: the most boxes selected per image and class; 0 selects none.
    - `iou_threshold`: the intersection over union with a better box that suppresses, if exceeded.
    - `score_threshold`: the score that selected boxes exceed; None takes all, but never NaN.
    - `center_point_box`: whether boxes are ``(x_center, y_center, width, height)`` instead of two
      opposite corners ``(y1, x1, y2, x2)``.
    - `counted`: whether a number of boxes is given, and no others count.
    """

    batch: int
    classes: int
    boxes: int
    max_output: int
    iou_threshold: float = 0.0
    score_threshold: float | None = None
    center_point_box: bool = False
    counted: bool = False

    def __post_init__(self) -> None:
        assert min(self.batch, self.classes, self.boxes) > 0, self
        assert self.max_output >= 0, self
        assert 0 <= self.iou_threshold <= 1, self

    @property
    def per_class(self) -> int:
        """The most boxes that can be selected per image and class."""
        return min(self.max_output, self.boxes)

    @property
    def rows(self) -> int:
        """The number of rows of the output, an upper bound of the selection; at least 1."""
        return max(1, self.batch * self.classes * self.per_class)


def lower_non_max_suppression(workload: NonMaxSuppressionWorkload) -> Any:
    """Return the scheduled ``PrimFunc(boxes, scores, [boxes that count,] selected, count)``.

    ``selected`` is ``(rows, 3)`` int64 of ``(image, class, box)``, ordered by image, class and
    falling score, equal scores by box, zeros after ``count[0]`` rows. ``count`` is ``(1,)`` int64::

        parallel image · class
          for each box that counts: keep (score, box) if above the threshold   # without a branch
          radix sort, 8 bits of the score at a time
          for each box, best first, until enough are selected:
            for 16 selected boxes at a time: any overlap above the threshold?
            no: select it
        for image · class: copy what is selected after the rows so far
    """
    image_scores = (workload.batch, workload.classes, workload.boxes)
    parameters = (
        ("boxes", (workload.batch, workload.boxes, 4), "float32"),
        ("scores", image_scores, "float32"),
        *([("given", (1,), "int64")] if workload.counted else []),
        ("selected", (workload.rows, 3), "int64"),
        ("count", (1,), "int64"),
    )

    def body(boxes: Any, scores: Any, *others: Any) -> None:
        *given, selected, count = others
        number = clipped(given[0], workload.boxes) if given else workload.boxes
        tasks = workload.batch * workload.classes
        picked = T.alloc_buffer((tasks, max(1, workload.per_class)), "int32", layout=None)
        counts = T.alloc_buffer((tasks,), "int32", layout=None)
        with task_loop(tasks, tasks * workload.boxes) as task:
            image, label = task // workload.classes, task % workload.classes
            order = T.alloc_buffer((2 * workload.boxes,), "uint64", layout=None)
            candidates = _emit_candidates(workload, scores, (image, label), number, order)
            start = emit_sort(order, workload.boxes, candidates)
            chosen = _emit_suppression(
                workload, boxes, image, (order, start, candidates), lambda k: [task, k], picked
            )
            T.buffer_store(counts, chosen, [task])
        _emit_rows(workload, picked, counts, selected, count)

    return build_kernel(parameters, body)


def _fence(value: Any) -> Any:
    """Prevent a product from being contracted with the sum that contains it."""
    return tirx.call_llvm_pure_intrin(value.ty.dtype, "llvm.arithmetic.fence", value)


def _emit_candidates(
    workload: NonMaxSuppressionWorkload,
    scores: Any,
    place: tuple[Any, Any],
    number: Any,
    order: Any,
) -> Any:
    """Write a sortable score and the index of each box above the threshold; return their number."""
    count = variable("int32", 0)
    with T.serial(number) as i:
        score = T.Bind(scores[(*place, i)])
        T.buffer_store(order, entry(score, i), [count[0]])
        if workload.score_threshold is None:
            keep = score >= tirx.const(-math.inf, "float32")
        else:
            keep = score > tirx.const(workload.score_threshold, "float32")
        add(count, T.cast(keep, "int32"))
    return count[0]


def _corners(workload: NonMaxSuppressionWorkload, boxes: Any, image: Any, box: Any) -> list[Any]:
    """Return the least and the largest coordinates of a box, and its area: five floats."""
    a, b, c, d = (T.Bind(boxes[image, box, i]) for i in range(4))
    if workload.center_point_box:
        half_width, half_height = (_fence(size * tirx.const(0.5, "float32")) for size in (c, d))
        corners = [a - half_width, b - half_height, a + half_width, b + half_height]
    else:
        corners = [T.min(a, c), T.min(b, d), T.max(a, c), T.max(b, d)]
    corners = [T.Bind(corner) for corner in corners]
    area = _fence((corners[2] - corners[0]) * (corners[3] - corners[1]))
    return [*corners, T.Bind(area)]


def _emit_suppression(
    workload: NonMaxSuppressionWorkload,
    boxes: Any,
    image: Any,
    ranking: tuple[Any, Any, Any],
    row: Any,
    picked: Any,
) -> Any:
    """Select boxes from the ranking into ``picked[row(k)]``; return how many."""
    order, start, candidates = ranking
    limit = workload.per_class
    # Coordinates and areas of selected boxes, in separate buffers for vector loads. A group starts
    # as zeros: boxes without extent overlap nothing.
    kept = [
        T.alloc_buffer((max(1, ceil_div(limit, GROUP)) * GROUP,), "float32", layout=None)
        for _ in range(5)
    ]
    chosen, at = variable("int32", 0), variable("int32", 0)
    with T.While(tirx.all(at[0] < candidates, chosen[0] < limit)):
        box = T.Bind(index_of(order[start + at[0]]))
        candidate = _corners(workload, boxes, image, box)
        hit, group = variable("int32", 0), variable("int32", 0)
        with T.While(tirx.all(hit[0] == 0, group[0] * GROUP < chosen[0])):
            rivals = [values[span(group[0] * GROUP, GROUP)] for values in kept]
            overlaps = _overlaps(rivals, candidate, workload.iou_threshold)
            one, zero = (splat(tirx.const(value, "int32"), GROUP) for value in (1, 0))
            found = tirx.call_llvm_pure_intrin(
                "int32", "llvm.vector.reduce.or", tirx.Select(overlaps, one, zero)
            )
            T.buffer_store(hit, found, [0])
            add(group, 1)
        with T.If(hit[0] == 0), T.Then():
            with T.If(chosen[0] % GROUP == 0), T.Then():
                for values in kept:
                    nothing = splat(tirx.const(0.0, "float32"), GROUP)
                    T.buffer_store(values, nothing, [span(chosen[0], GROUP)])
            for values, value in zip(kept, candidate, strict=True):
                T.buffer_store(values, value, [chosen[0]])
            T.buffer_store(picked, box, row(chosen[0]))
            add(chosen, 1)
        add(at, 1)
    return chosen[0]


def _overlaps(rivals: list[Any], candidate: list[Any], threshold: float) -> Any:
    """Return whether each rival's intersection over union with the candidate is too large.

    Disjoint boxes have no intersection, and ``0 / union`` (``0 / 0`` for empty boxes) never exceeds
    the threshold. Nothing computed from a NaN coordinate does either, because the area is NaN too.
    """
    low0, low1, high0, high1, area = (splat(value, GROUP) for value in candidate)
    zero = splat(tirx.const(0.0, "float32"), GROUP)
    extent0 = T.max(T.min(high0, rivals[2]) - T.max(low0, rivals[0]), zero)
    extent1 = T.max(T.min(high1, rivals[3]) - T.max(low1, rivals[1]), zero)
    shared = _fence(extent0 * extent1)
    union = area + rivals[4] - shared
    return shared / union > splat(tirx.const(threshold, "float32"), GROUP)


def _emit_rows(
    workload: NonMaxSuppressionWorkload, picked: Any, counts: Any, selected: Any, count: Any
) -> None:
    """Pack the selections of all tasks into rows, followed by zeros."""
    total = variable("int32", 0)
    with T.serial(workload.batch * workload.classes) as task:
        with T.serial(counts[task]) as k:
            place = total[0] + k
            values = (task // workload.classes, task % workload.classes, picked[task, k])
            for column, value in enumerate(values):
                T.buffer_store(selected, T.cast(value, "int64"), [place, column])
        add(total, counts[task])
    with T.serial(workload.rows - total[0]) as i:
        for column in range(3):
            T.buffer_store(selected, tirx.const(0, "int64"), [total[0] + i, column])
    T.buffer_store(count, T.cast(total[0], "int64"), [0])
