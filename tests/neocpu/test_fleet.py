"""The options that name a fleet, and what is wrong with them."""

from __future__ import annotations

import pytest

from neocpu.fleet import Fleet, parse_fleet
from neocpu.schedules.errors import UsageError
from neocpu.search.rpc_tracker import Address


def test_a_fleet():
    assert parse_fleet(None, None, None) is None
    tracker = Address("127.0.0.1", 9190)
    assert parse_fleet("127.0.0.1:9190", "pi4", None) == Fleet(tracker, "pi4")
    assert parse_fleet("127.0.0.1:9190", "pi4", 3) == Fleet(tracker, "pi4", 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((None, "pi4", None), "--key needs --tracker"),
        ((None, None, 2), "--parallel needs --tracker"),
        (("127.0.0.1:9190", None, None), "--tracker needs --key"),
        (("127.0.0.1", "pi4", None), "is not HOST:PORT"),
        (("127.0.0.1:9190", "pi4", 0), "--parallel must be 1 or more"),
    ],
)
def test_wrong_options(options, message: str):
    with pytest.raises(UsageError, match=message):
        parse_fleet(*options)
