"""Count the requests of several clients that work at the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Request(NamedTuple):
    """The times of a request's first byte sent and its answer's last byte received, in seconds."""

    sent: float
    answered: float

    @property
    def seconds(self) -> float:
        """The duration of the request."""
        return self.answered - self.sent


class Counted(NamedTuple):
    """The counted requests of clients that wait for each other."""

    seconds: tuple[float, ...]  # the time of each request that was sent within the counted time
    # The inverse of throughput: the counted time over the number of requests in it. A request that
    # lies partly in it counts in part.
    per_answer: float


def counted(clients: Sequence[Sequence[Request]], stop: float) -> Counted:
    """Count the requests of the time in which all clients work.

    It begins when every client has had an answer, because all first requests come at once. It ends
    when clients stop sending requests. If no request is sent in it, all time counts.

    clients: the requests of each client.
    stop: the time at which clients stop sending requests.
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
