"""Addresses, trackers and the options that name a fleet, as users misspell them."""

from __future__ import annotations

import json
import socket
import struct
import threading

import pytest
from fake_fleet import FakeTracker

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.search.measuring.rpc_tracker import MAGIC, Address, Fleet, Tracker, parse_fleet


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9190", Address("127.0.0.1", 9190)),
        ("fleet.example:1", Address("fleet.example", 1)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_addresses(text: str, address: Address):
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "fleet", "fleet:", ":9190", "fleet:port", "fleet:0", "fleet:65536", "::1:9190"]
)
def test_malformed_addresses(text: str):
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        Address.parse(text)


def refused(address: Address, key: str) -> str:
    with pytest.raises(UsageError) as caught:
        Tracker(address, key)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_tracker_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    message = refused(Address("127.0.0.1", port), "zen")
    assert f"no tracker answers at 127.0.0.1:{port} (connection refused)" in message
    assert "rpc_tracker" in message


def test_something_else_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: listener.accept()[0].sendall(b"220 mail"))
        thread.start()
        address = Address("127.0.0.1", listener.getsockname()[1])
        assert "not a tvm rpc tracker" in refused(address, "zen").lower()
        thread.join()


TALK = [7, [0], [0, {}], [0, {"server_info": [{"addr": []}]}]]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *((json.dumps(answer).encode(), None) for answer in TALK),
        *((b"[" * 100_000, None), (b"[1" + b"0" * 9000 + b"]", None), (b"\xff", None)),
        *((b"", (1 << 31) - 1), (b"", -1)),
    ],
    ids=lambda given: str(given)[:20],
)
def test_a_tracker_that_talks_of_something_else(text, size):
    def talk(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.sendall(struct.pack("<i", MAGIC))
        connection.recv(64), connection.recv(64)
        connection.sendall(struct.pack("<i", len(text) if size is None else size) + text)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        assert "no tracker answers" in refused(Address("127.0.0.1", port), "zen")
        thread.join()


def test_no_server_of_the_key():
    tracker = FakeTracker(["x86_64"] * 2, key="skylake")
    message = refused(tracker.address, "skylak")
    assert "no server of key='skylak'" in message
    assert "skylake (2)" in message
    assert "did you mean 'skylake'" in message
    assert "it has: none" in refused(FakeTracker([]).address, "zen")


def test_servers_are_counted_and_leased():
    tracker = FakeTracker(["x86_64"] * 2)
    line = Tracker(tracker.address, "zen")
    assert line.servers == 2
    leased = {line.ask().receive(5).address for _ in range(2)}
    assert leased == {server.address for server in tracker.servers}
    assert line.ask().receive(0.1) is None


def test_the_tracker_lists_living_servers():
    tracker = FakeTracker(["x86_64"] * 2)
    one, other = tracker.servers
    line = Tracker(tracker.address, "zen")
    assert line.lists(one.address)
    tracker.forget(one)
    assert not line.lists(one.address)
    assert line.lists(other.address)
    line.address = Address("127.0.0.1", 1)
    assert not line.lists(other.address)


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
