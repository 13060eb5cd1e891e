"""A bound on the bytes that a server holds for its clients, in both directions."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from neocpu.foundation.closing import Closing
from neocpu.serving.refusals import OverloadedError

RETRY_SECONDS: Final = 5
"""When room is likely: bodies take a second, unread answers up to a minute."""


class InFlight:
    """Counts request bodies that arrive or are computed with, and answers that are not sent yet.

    Attributes
    ----------
    limit : int
        Most bytes of both together; a request alone may take more.
    requests, answers : int
        Bytes of each now.
    """

    def __init__(self, limit: int, registry: CollectorRegistry) -> None:
        self.limit = limit
        self.requests = self.answers = 0
        held = Gauge(
            "neocpu_bytes_in_flight",
            "Bytes held of requests that are received or computed, and of answers not sent yet",
            ("direction",),
            registry=registry,
        )
        held.labels("request").set_function(lambda: self.requests)
        held.labels("answer").set_function(lambda: self.answers)
        most = Gauge(
            "neocpu_bytes_in_flight_limit",
            "Most bytes of both directions together",
            registry=registry,
        )
        most.set(limit)

    def share(self, answer: int) -> Share:
        """Return the share of a new request, whose answer has at least so many bytes.

        Raises
        ------
        OverloadedError
            There is no room.
        """
        share = Share(self)
        share.hold_answer(answer)
        return share

    def check(self, more: int, own: int) -> None:
        """Check that there is room for ``more`` bytes of a request that holds ``own`` already.

        Raises
        ------
        OverloadedError
            Other requests leave no room.
        """
        held = self.requests + self.answers
        if more > 0 and held > own and held + more > self.limit:
            raise OverloadedError(
                f"requests and answers under way hold {held} bytes of {self.limit} "
                "(--max-bytes-in-flight): try again later",
                RETRY_SECONDS,
            )


class Share(Closing):
    """The bytes that one request holds until it is closed. A context manager, too."""

    __slots__ = ("_all", "_answer", "_request")

    def __init__(self, in_flight: InFlight) -> None:
        self._all = in_flight
        self._request = 0
        self._answer = 0

    def hold_request(self, size: int) -> None:
        """Count ``size`` bytes of its body, instead of those before.

        Raises
        ------
        OverloadedError
            There is no room.
        """
        self._all.check(size - self._request, self._request + self._answer)
        self._all.requests += size - self._request
        self._request = size

    def hold_answer(self, size: int) -> None:
        """Count ``size`` bytes of its answer, instead of those before.

        Raises
        ------
        OverloadedError
            There is no room.
        """
        self._all.check(size - self._answer, self._request + self._answer)
        self._all.answers += size - self._answer
        self._answer = size

    def close(self) -> None:
        """Give all of it back. May be repeated."""
        self.hold_request(0)
        self.hold_answer(0)
