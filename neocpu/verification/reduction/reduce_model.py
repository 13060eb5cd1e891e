"""Making a failing model smaller as long as it fails in the same way, by delta debugging."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from neocpu.foundation.errors import UsageError
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.units import plural
from neocpu.verification.reduction.checks import Check, same_kind
from neocpu.verification.reduction.whole_graph import Case, WholeGraph

FIRST_SECONDS = 1800.0  # time limit of the check of the whole model
PART_FACTOR = 3.0
"""Time limit of the check of a part, as a multiple of the whole model's time; it may hang."""
SLACK = 20.0  # seconds that are added to that limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The smallest part that was found to fail, its failure, and the nodes of the whole model.

    ``checks`` counts the whole model, too. The part ``is_smallest`` if the search finished: no
    single node can be left out.
    """

    case: Case
    nodes: int
    failure: str
    checks: int
    seconds: float
    is_smallest: bool


class _TimeIsUp(Exception):
    """Ends a search."""


def reduce_model(
    whole: WholeGraph,
    check: Check,
    name: str,
    *,
    budget: float,
    on_progress: ProgressCallback = silent,
    on_smaller: Callable[[Case], None] = lambda case: None,
    clock: Callable[[], float] = time.monotonic,
) -> Reduction:
    """Return a small part of a model, of that name, that fails in the same way as the whole.

    After ``budget`` seconds and a running check, it is the smallest part so far. ``on_smaller`` is
    called with every part that fails. A model that passes, or cannot be cut, is a `UsageError`.
    """
    start = clock()
    nodes = len(whole.model.graph.node)
    case = whole.part(range(nodes), name)
    if case is None:
        raise UsageError("the model is not valid ONNX, and cannot be cut: see `neocpu compile`")
    on_progress(Progress("reduce", detail=f"the whole model, {plural(nodes, 'node')}"))
    first = check.find(case, FIRST_SECONDS)
    limit = PART_FACTOR * (clock() - start) + SLACK
    if first is None:
        raise UsageError("the model passes the check, so there is nothing to reduce")
    failures = {tuple(range(nodes)): first}
    passed: set[Part] = set()

    def fails(part: Part) -> bool:
        if part in failures or part in passed:
            return part in failures
        if clock() - start > budget:
            raise _TimeIsUp
        done = len(failures) + len(passed)
        on_progress(Progress("reduce", done, detail=plural(len(part), "node")))
        smaller = whole.part(part, name)
        failure = None if smaller is None else check.find(smaller, limit)
        if failure is None or not same_kind(failure, first):
            passed.add(part)
            return False
        failures[part] = failure
        return True

    smallest, finished = tuple(range(nodes)), False
    try:
        for part in shrink(smallest, fails):
            smaller = whole.part(part, name)
            assert smaller is not None  # it failed
            smallest, case = part, smaller
            on_smaller(case)
        finished = True
    except _TimeIsUp:
        pass
    checks = len(failures) + len(passed)
    failure = failures[smallest]
    return Reduction(
        case=case,
        nodes=nodes,
        failure=failure,
        checks=checks,
        seconds=clock() - start,
        is_smallest=finished,
    )


Part: TypeAlias = tuple[int, ...]
Fails: TypeAlias = Callable[[Part], bool]


def shrink(whole: Sequence[int], fails: Fails) -> Iterator[Part]:
    """Yield smaller and smaller parts of a sequence that fails; each of them fails.

    The search takes halves as long as one fails, as each costs half as much as the previous one,
    then cuts both ends by bisection, and then smaller and smaller pieces between. No single element
    can be left out of the last part, but perhaps several. An error that ``fails`` raises ends the
    search.
    """
    kept = tuple(whole)
    while (half := _failing_half(kept, fails)) is not None:
        kept = half
        yield kept
    for bisect in (_without_end, _without_start):
        part = bisect(kept, fails)
        if len(part) < len(kept):
            kept = part
            yield kept
    yield from _without_pieces(kept, fails)


def _failing_half(kept: Part, fails: Fails) -> Part | None:
    """Return the first, last or middle half if it fails; None if none does."""
    size = (len(kept) + 1) // 2
    if size == len(kept):
        return None
    starts = dict.fromkeys((0, len(kept) - size, (len(kept) - size) // 2))
    halves = (kept[start : start + size] for start in starts)
    return next((half for half in halves if fails(half)), None)


def _without_end(kept: Part, fails: Fails) -> Part:
    """Return a shortest beginning that fails, assuming that all longer ones fail too."""
    passing, failing = 0, len(kept)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if fails(kept[:middle]):
            failing = middle
        else:
            passing = middle
    return kept[:failing]


def _without_start(kept: Part, fails: Fails) -> Part:
    """Return a shortest end that fails, assuming that all longer ones fail too."""
    failing, passing = 0, len(kept)
    while passing - failing > 1:
        middle = (passing + failing) // 2
        if fails(kept[middle:]):
            failing = middle
        else:
            passing = middle
    return kept[failing:]


def _without_pieces(kept: Part, fails: Fails) -> Iterator[Part]:
    """Leave out pieces of half the length, of a quarter, and so on, until none can be left out."""
    size = len(kept) // 2
    while size:
        at, before = 0, kept
        while at < len(kept):
            rest = kept[:at] + kept[at + size :]
            if rest and fails(rest):
                kept = rest
                yield kept
            else:
                at += size
        # An element that was necessary may no longer be, once others are left out.
        size = size // 2 if size > 1 or kept == before else 1
