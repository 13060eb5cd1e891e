"""Work on large arrays piece by piece: what a piece needs stays in a cache, and CPUs share them."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from neocpu.foundation.host import usable_cpus

#: Elements that are computed at a time by what has many steps: all that these need stays in L2.
IN_CACHE = 1 << 15
#: Pieces from which other threads are worth their start.
SHARED = 16


def in_pieces(count: int, elements: int, work: Callable[[slice], None]) -> None:
    """Call ``work`` with slices of ``range(count)``, in no order and on all CPUs if there are many.

    Parameters
    ----------
    count : int
        Rows, channels or whatever is computed apart from each other.
    elements : int
        Of each.
    work : callable
        Computes what a slice stands for; numpy lets other threads run meanwhile.
    """
    step = max(1, IN_CACHE // max(1, elements))
    pieces = [slice(start, start + step) for start in range(0, count, step)]
    threads = min(usable_cpus(), len(pieces) // SHARED)
    if threads < 2:
        for piece in pieces:
            work(piece)
        return
    # A share each, and all of what numpy was told to do about overflows.
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
