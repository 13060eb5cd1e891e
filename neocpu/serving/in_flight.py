"""A bound on the bytes of requests and answers that a server has in memory."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from neocpu.foundation.closing import Closing
from neocpu.serving.refusals import OverloadedError

RETRY_SECONDS: Final = 5
"""Seconds after which room is likely: bodies take a second, unread answers up to a minute."""


class InFlight:
    """Counts the bytes of requests that arrive or are computed, and of answers not sent yet.

    `limit`: the most bytes of both, but for a single request. `requests`, `answers`: present bytes.
    """

    def __init__(self, limit: int, registry: CollectorRegistry) -> None:
        self.limit = limit
        self.requests = self.answers = 0
        used = Gauge(
            "neocpu_bytes_in_flight",
            "Bytes held of requests that are received or computed, and of answers not sent yet",
            ("direction",),
            registry=registry,
        )
        used.labels("request").set_function(lambda: self.requests)
        used.labels("answer").set_function(lambda: self.answers)
        most = Gauge(
            "neocpu_bytes_in_flight_limit",
            "Most bytes of both directions together",
            registry=registry,
        )
        most.set(limit)

    def share(self, answer: int) -> Share:
        """Return the share of a new request with an answer of at least so many bytes."""
        share = Share(self)
        share.hold_answer(answer)
        return share

    def check(self, more: int, own: int) -> None:
        """Check that there is room for ``more`` bytes of a request that already has ``own``."""
        used = self.requests + self.answers
        if more > 0 and used > own and used + more > self.limit:
            raise OverloadedError(
                f"requests and answers under way hold {used} bytes of {self.limit} "
                "(--max-bytes-in-flight): try again later",
                RETRY_SECONDS,
            )


class Share(Closing):
    """The bytes that one request and its answer take until this is closed."""

    __slots__ = ("_all", "_answer", "_request")

    def __init__(self, in_flight: InFlight) -> None:
        self._all = in_flight
        self._request = 0
        self._answer = 0

    def hold_request(self, size: int) -> None:
        self._all.check(size - self._request, self._request + self._answer)
        self._all.requests += size - self._request
        self._request = size

    def hold_answer(self, size: int) -> None:
        self._all.check(size - self._answer, self._request + self._answer)
        self._all.answers += size - self._answer
        self._answer = size

    def close(self) -> None:
        """Release all bytes. May be repeated."""
        self.hold_request(0)
        self.hold_answer(0)
