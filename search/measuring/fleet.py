"""The servers that tuning measures on instead of this machine, as options name them."""

from __future__ import annotations

from dataclasses import dataclass

from neocpu.foundation.errors import UsageError
from neocpu.search.measuring.rpc_tracker import Address


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers behind TVM's RPC tracker."""

    tracker: Address
    key: str  # name that the servers are registered under
    parallel: int | None = None  # servers to use at once; None for all


def parse_fleet(tracker: str | None, key: str | None, parallel: int | None) -> Fleet | None:
    """Return the fleet that options name, None if they name none. Raises UsageError if an option is
    malformed, or another one needs an option that is missing.
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
