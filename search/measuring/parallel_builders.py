"""Measuring processes that build a batch together, a share each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neocpu.search.measuring.child import Child, Lost
from neocpu.search.measuring.measure import Measurement, Request
from neocpu.search.measuring.measuring_process import BuildJob, Setup

# Candidates one child builds at a time: few enough to lose little when one of them crashes it.
SHARE = 10
# What a child keeps of earlier batches, to compare it again: a kernel takes about half a megabyte.
MAX_BUILT = 1000


class BuilderGroup:
    """Children that build while no candidate, or one of another group, is timed. Every child gets
    `setup` first, and may take `timeout` seconds to build its share.
    """

    def __init__(self, setup: Setup, size: int, timeout: float) -> None:
        self.children = tuple(Child(setup) for _ in range(size))
        self._timeout = timeout
        self._shares: dict[Child, tuple[Request, ...]] = {}

    def begin(self, requests: Sequence[Request]) -> None:
        """Start building ``requests``; `finish` waits for it."""
        count = len(self.children)
        shares = {child: tuple(requests[i::count]) for i, child in enumerate(self.children)}
        self._shares = {child: share for child, share in shares.items() if share}
        for child in self._shares:
            child.start()
        for child, share in self._shares.items():
            child.send(BuildJob(share, keep=len(child.built) + len(share) <= MAX_BUILT))

    def finish(self) -> Iterator[tuple[Child, Request] | Measurement]:
        """Yield each request with the child that built it, or its failure, child by child.

        If a child is lost while it builds, the child that times builds its share, one request at a
        time.
        """
        failed: dict[Request, str] = {}
        for child, share in self._shares.items():
            answer = child.receive(self._timeout)
            if not isinstance(answer, Lost):
                failed |= {r: error for r, error in zip(share, answer, strict=True) if error}
            child.pause()
        for child, share in self._shares.items():
            for request in share:
                if request in failed:
                    yield Measurement(request, (), failed[request])
                else:
                    yield child, request
