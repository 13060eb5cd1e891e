"""Which of the requests of several clients count, and how many they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Request(NamedTuple):
    """When the first byte of one was sent and the last of its answer received, in seconds."""

    sent: float
    answered: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.answered - self.sent


class Counted(NamedTuple):
    """What counts of the requests of clients who wait for each other.

    Attributes
    ----------
    seconds : tuple of float
        Of each request that was sent within the time that counts.
    per_answer : float
        That time over the requests in it, of which one that lies in it in part counts in part: the
        inverse of throughput.
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
        When they stop asking.
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
