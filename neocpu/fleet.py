"""Where tuning measures: on this machine, or on the servers of a tracker."""

from __future__ import annotations

from dataclasses import dataclass

from neocpu.schedules.errors import UsageError
from neocpu.schedules.target import CpuTarget
from neocpu.search.local_measurer import LocalMeasurer
from neocpu.search.rpc_measurer import RpcMeasurer
from neocpu.search.rpc_tracker import Address


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers behind TVM's RPC tracker.

    Attributes
    ----------
    key : str
        What the servers are registered under.
    parallel : int or None
        Servers to use at once; None for all.
    """

    tracker: Address
    key: str
    parallel: int | None = None


def parse_fleet(tracker: str | None, key: str | None, parallel: int | None) -> Fleet | None:
    """Return the fleet that options name, None if they name none.

    Raises
    ------
    UsageError
        If an option is malformed, or one is missing that another needs.
    """
    if tracker is None:
        for name, value in (("--key", key), ("--parallel", parallel)):
            if value is not None:
                raise UsageError(f"{name} needs --tracker HOST:PORT")
        return None
    if key is None:
        raise UsageError("--tracker needs --key KEY, what the servers are registered under")
    if parallel is not None and parallel < 1:
        raise UsageError(f"--parallel must be 1 or more, got {parallel}")
    return Fleet(Address.parse(tracker), key, parallel)


def make_measurer(
    target: CpuTarget, threads: int, fleet: Fleet | None
) -> LocalMeasurer | RpcMeasurer:
    """Return the measurer of ``fleet``, or this machine's.

    Raises
    ------
    TargetError
        If there is no fleet and this machine cannot run code for ``target``.
    UsageError
        If the fleet cannot be used.
    """
    if fleet is None:
        return LocalMeasurer(target, threads)
    return RpcMeasurer(target, threads, fleet.tracker, fleet.key, fleet.parallel)
