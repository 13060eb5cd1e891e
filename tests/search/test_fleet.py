"""The options that name a fleet, and mistakes in them."""

from __future__ import annotations

import socket

import pytest

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.search.measuring.rpc_tracker import Address, Fleet, parse_fleet


def test_a_fleet():
    assert parse_fleet(None, None, None) is None
    tracker = Address("127.0.0.1", 9190)
    assert parse_fleet("127.0.0.1:9190", "pi4", None) == Fleet(tracker, "pi4")
    assert parse_fleet("127.0.0.1:9190", "pi4", 3) == Fleet(tracker, "pi4", 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((None, "pi4", None), "key needs tracker='HOST:PORT'"),
        ((None, None, 2), "parallel needs tracker='HOST:PORT'"),
        (("127.0.0.1:9190", None, None), "tracker needs key='KEY'"),
        (("127.0.0.1", "pi4", None), "is not HOST:PORT"),
        (("127.0.0.1:9190", "pi4", 0), "parallel= must be 1 or more"),
    ],
)
def test_wrong_options(options, message: str):
    with pytest.raises(UsageError, match=message):
        parse_fleet(*options)


def test_an_unreachable_tracker_is_reported_before_models_are_read(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UsageError, match=f"no tracker answers at 127.0.0.1:{port}"):
        neocpu.tune(
            [tmp_path / "nowhere.onnx"],
            database=tmp_path / "records.jsonl",
            strategy="grid",
            tracker=f"127.0.0.1:{port}",
            key="pi4",
        )
