"""Process large arrays in pieces, each small enough for a cache, on all CPUs."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from neocpu.foundation.host import usable_cpus

#: Elements of a piece; all intermediate results of so many stay in L2.
IN_CACHE = 1 << 15
#: Pieces from which other threads are worth their start.
SHARED = 16


def in_pieces(count: int, elements: int, work: Callable[[slice], None]) -> None:
    """Call ``work`` with slices of ``range(count)``, in any order, on all CPUs if there are many.

    Each of the ``count`` rows or channels has ``elements`` elements. Numpy releases the interpreter
    lock in ``work``.
    """
    step = max(1, IN_CACHE // max(1, elements))
    pieces = [slice(start, start + step) for start in range(0, count, step)]
    threads = min(usable_cpus(), len(pieces) // SHARED)
    if threads < 2:
        for piece in pieces:
            work(piece)
        return
    # Each thread gets a share of the pieces, and the caller's settings of numpy's errors.
    shares = [pieces[i::threads] for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        contexts = [contextvars.copy_context() for _ in shares]
        done = [
            pool.submit(context.run, _each, work, share)
            for context, share in zip(contexts, shares, strict=True)
        ]
        for one in done:
            one.result()


def _each(work: Callable[[slice], None], pieces: list[slice]) -> None:
    for piece in pieces:
        work(piece)
