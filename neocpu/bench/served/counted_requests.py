"""The requests of several clients that count, and their number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Request(NamedTuple):
    """The times of a request's first byte sent and of its answer's last received, in seconds."""

    sent: float
    answered: float

    @property
    def seconds(self) -> float:
        """The time that it took."""
        return self.answered - self.sent


class Counted(NamedTuple):
    """The requests that count, of clients who wait for each other.

    Attributes
    ----------
    seconds : tuple of float
        The time of each request that was sent within the time that counts.
    per_answer : float
        The inverse of throughput: that time over the number of requests in it. A request that lies
        in it in part counts in part.
    """

    seconds: tuple[float, ...]
    per_answer: float


def counted(clients: Sequence[Sequence[Request]], stop: float) -> Counted:
    """Count the requests of the time in which all clients are at it.

    It begins when each has had an answer, for their first requests come all at once, and ends when
    they stop asking, from when on there are fewer. If nothing is asked in it, all time counts.

    Parameters
    ----------
    clients : sequence
        The requests of each.
    stop : float
        The time at which clients stop asking.
    """
    requests = [each for one in clients for each in one]
    if not requests:
        return Counted((), math.inf)
    start = max(one[0].answered for one in clients if one)
    if not any(start <= each.sent < stop for each in requests):
        start = min(each.sent for each in requests)
        stop = max(each.answered for each in requests)
    parts = (
        max(0.0, min(each.answered, stop) - max(each.sent, start)) / each.seconds
        for each in requests
    )
    return Counted(
        tuple(each.seconds for each in requests if each.sent >= start),
        (stop - start) / sum(parts),
    )
