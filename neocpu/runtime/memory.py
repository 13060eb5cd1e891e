"""Anonymous memory for what a module owns."""

from __future__ import annotations

import contextlib
import mmap


def huge_pages(size: int) -> mmap.mmap:
    """Return ``size`` bytes of zeros, at least one, on huge pages where the kernel has them.

    They take up memory only once they are written, and go with the last array that views them.
    """
    memory = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel built without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
