"""TVM's RPC tracker as its client sees it: which servers there are, and one of them to use.

The protocol is a few JSON messages, each after its length (`tvm.rpc.tracker`). It is spoken here
instead of by `tvm.rpc.TrackerSession` because that tells neither which server it got, nor does it
ever give up on one.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.given_json import parse_json
from neocpu.foundation.json_codec import JsonObject

MAGIC = 0x2F271
REQUEST, SUMMARY, SUCCESS = 4, 6, 0  # of `tvm.rpc.base.TrackerCode`
PRIORITY = 1
TIMEOUT = 10.0
# What comes of an answer that is none, or another program's.
_NO_ANSWER = (OSError, ValueError, TypeError, LookupError, RecursionError)
MAX_MESSAGE = 1 << 24
"""Bytes of what a tracker says: some hundred of each server."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or IP address, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``HOST:PORT``, where an IPv6 address is in brackets."""
        match = re.fullmatch(r"(?:\[(?P<v6>[^]]+)\]|(?P<name>[^:\[\]\s]+)):(?P<port>\d{1,5})", text)
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            raise UsageError(f"--tracker '{text}' is not HOST:PORT, as in 127.0.0.1:9190")
        return cls(match["v6"] or match["name"], int(match["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Lease:
    """A server that the tracker has handed out, and the key that opens it, once."""

    address: Address
    key: str


class Tracker:
    """A tracker, and the servers it lists under one key. Raises UsageError if no tracker answers,
    or it has no server of that key.
    """

    def __init__(self, address: Address, key: str) -> None:
        self.address = address
        self.key = key
        self.servers = self._count()

    def ask(self) -> Waiting:
        """Get into the line for a server. Raises OSError if the tracker is gone."""
        with ExitStack() as on_failure:
            connection = on_failure.enter_context(self._connect())
            _send(connection, [REQUEST, self.key, "", PRIORITY])
            on_failure.pop_all()
        return Waiting(connection)

    def lists(self, server: Address) -> bool:
        """Whether ``server`` is connected to the tracker: the connection ends when it dies."""
        try:
            addresses = [info["addr"] for info in self._summary()]
            return [server.host, server.port] in [[host, int(port)] for host, port in addresses]
        except _NO_ANSWER:
            return False

    def _count(self) -> int:
        try:
            keys = Counter(str(info["key"]).removeprefix("server:") for info in self._summary())
        except _NO_ANSWER as error:
            raise UsageError(
                f"no tracker answers at {self.address} ({_reason(error)}): start one with "
                f"'python -P -m tvm.exec.rpc_tracker --host 127.0.0.1' or correct --tracker"
            ) from None
        if self.key not in keys:
            known = ", ".join(f"{key} ({count})" for key, count in sorted(keys.items())) or "none"
            hint = did_you_mean(self.key, keys) or "; start servers with --key " + self.key
            raise UsageError(
                f"the tracker {self.address} has no server of --key {self.key}; it has: "
                f"{known}{hint}"
            )
        return keys[self.key]

    def _summary(self) -> list[JsonObject]:
        with self._connect() as connection:
            _send(connection, [SUMMARY])
            _, summary = _receive(connection)
        servers: list[JsonObject] = summary["server_info"]
        return servers

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((self.address.host, self.address.port), TIMEOUT)
        try:
            connection.sendall(struct.pack("<i", MAGIC))
            if _number(connection) != MAGIC:
                raise OSError("it is not a TVM RPC tracker")
        except BaseException:
            connection.close()
            raise
        return connection


class Waiting:
    """A place in the line for a server."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def receive(self, timeout: float) -> Lease | None:
        """Wait for the server; return None if none gets free in time or the tracker is gone."""
        with self._connection as connection:
            try:
                connection.settimeout(max(timeout, 0.001))
                code, (host, port, key) = _receive(connection)
            except _NO_ANSWER:
                return None
        return Lease(Address(host, port), key) if code == SUCCESS else None

    def cancel(self) -> None:
        """End the waiting from another thread."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def _send(connection: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("<i", len(data)) + data)


def _receive(connection: socket.socket) -> Any:
    size = _number(connection)
    if not 0 <= size <= MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    return parse_json(_exactly(connection, size))


def _number(connection: socket.socket) -> int:
    number: int = struct.unpack("<i", _exactly(connection, 4))[0]
    return number


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise OSError("connection closed")
        data += part
    return data


def _reason(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return str(strerror or error or type(error).__name__).lower()


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
        raise UsageError("--tracker needs --key KEY, the key of the registered servers")
    if parallel is not None and parallel < 1:
        raise UsageError(f"--parallel must be 1 or more, got {parallel}")
    return Fleet(Address.parse(tracker), key, parallel)
