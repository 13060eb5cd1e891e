"""A bound on the bytes that a server holds for its clients, in both directions."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from neocpu.serving.refusals import OverloadedError

RETRY_SECONDS: Final = 5
"""When room is likely: bodies take a second, unread answers up to a minute."""


class InFlight:
    """Counts request bodies that arrive or are computed with, and answers that are not sent yet.

    Attributes
    ----------
    limit : int
        Most bytes of both together; a request alone may take more.
    held : int
        Bytes of both now.
    """

    def __init__(self, limit: int, registry: CollectorRegistry) -> None:
        self.limit = limit
        self.held = 0
        bytes_held = Gauge(
            "neocpu_bytes_in_flight",
            "Bytes held of requests that are received or computed, and of answers not sent yet",
            ("direction",),
            registry=registry,
        )
        self._requests, self._answers = map(bytes_held.labels, ("request", "answer"))
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
            If there is no room.
        """
        share = Share(self, self._requests, self._answers)
        share.hold_answer(answer)
        return share

    def take(self, more: int, own: int) -> None:
        """Count ``more`` bytes, or fewer, for a request that holds ``own`` already.

        Raises
        ------
        OverloadedError
            If others leave no room for more.
        """
        if more > 0 and self.held > own and self.held + more > self.limit:
            raise OverloadedError(
                f"requests and answers under way hold {self.held} bytes of {self.limit} "
                "(--max-bytes-in-flight): try again later",
                RETRY_SECONDS,
            )
        self.held += more


class Share:
    """What one request holds, until it is closed. A context manager, too."""

    __slots__ = ("_all", "_answer", "_answers", "_request", "_requests")

    def __init__(self, in_flight: InFlight, requests: Gauge, answers: Gauge) -> None:
        self._all = in_flight
        self._requests, self._answers = requests, answers
        self._request = 0
        self._answer = 0

    def hold_request(self, size: int) -> None:
        """Count ``size`` bytes of its body, instead of those before.

        Raises
        ------
        OverloadedError
            If there is no room.
        """
        self._all.take(size - self._request, self._request + self._answer)
        self._requests.inc(size - self._request)
        self._request = size

    def hold_answer(self, size: int) -> None:
        """Count ``size`` bytes of its answer, instead of those before.

        Raises
        ------
        OverloadedError
            If there is no room.
        """
        self._all.take(size - self._answer, self._request + self._answer)
        self._answers.inc(size - self._answer)
        self._answer = size

    def close(self) -> None:
        """Give all of it back. May be repeated."""
        self.hold_request(0)
        self.hold_answer(0)

    def __enter__(self) -> Share:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
