"""A tracker and servers without TVM: a candidate's ``reg_oc`` selects its behaviour.

Fake sessions in the children talk to these servers: a connection is a session, and a server is free
again when its session ends, unless it has died.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import struct
import threading
import time
from pathlib import Path

import fake_builder
from fake_builder import WORKLOAD as WORKLOAD
from fake_builder import request as request

from neocpu.foundation.errors import NeoCPUError
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.measuring_process import Ended
from neocpu.search.measuring.rpc_tracker import MAGIC, REQUEST, Address

GOOD, UNBUILDABLE, UNLINKABLE, RAISES, CRASHES, HANGS, WRONG, ALONE = range(1, 9)
KILLS_SERVER = 9  # the one of the lowest port that is alive; harmless on others

TARGET = dataclasses.replace(fake_builder.TARGET, features=("sse4.2",))
TIMEOUT = 0.5


class FakeServer:
    """Answers each connection with its machine, and is free again when the other end leaves."""

    def __init__(self, tracker: FakeTracker, machine: str, broken: bool) -> None:
        self._tracker = tracker
        self._about = json.dumps([machine, broken]).encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self.sessions = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            self.sessions += 1
            connection.sendall(self._about.ljust(64))
            told_to_die = b""
            with contextlib.suppress(ConnectionResetError):
                told_to_die = connection.recv(1)
            if told_to_die:
                self._listener.close()
                self._tracker.forget(self)
                connection.close()
                return
            connection.close()
            self._tracker.offer(self)


class FakeTracker:
    """Speaks as much of the tracker's protocol as its client does."""

    def __init__(self, machines: list[str], broken: int = 0, key: str = "zen") -> None:
        self._lock = threading.Lock()
        self._line: list[socket.socket] = []
        self._key = key
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self.servers = [FakeServer(self, m, i < broken) for i, m in enumerate(machines)]
        self._free = list(self.servers)
        threading.Thread(target=self._accept, daemon=True).start()

    def offer(self, server: FakeServer) -> None:
        with self._lock:
            self._free.append(server)
            self._match()

    def forget(self, server: FakeServer) -> None:
        with self._lock:
            self.servers.remove(server)

    def close(self) -> None:
        self._listener.close()

    def _match(self) -> None:
        while self._line and self._free:
            waiting, server = self._line.pop(0), self._free.pop(0)
            try:
                _put(waiting, [0, [server.address.host, server.address.port, "key"]])
            except OSError:
                self._free.insert(0, server)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        connection.recv(4)
        connection.sendall(struct.pack("<i", MAGIC))
        size = struct.unpack("<i", connection.recv(4))[0]
        if json.loads(connection.recv(size))[0] == REQUEST:
            with self._lock:
                self._line.append(connection)
                self._match()
            return
        addresses = [[s.address.host, s.address.port] for s in self.servers]
        info = [{"key": f"server:{self._key}", "addr": address} for address in addresses]
        _put(connection, [0, {"server_info": info, "queue_info": {}}])


def _put(connection: socket.socket, message) -> None:
    data = json.dumps(message).encode()
    connection.sendall(struct.pack("<i", len(data)) + data)


class FakeLibraries:
    """Builds a candidate to an empty file."""

    def __init__(self, target: CpuTarget, threads: int) -> None: ...

    def build_library(self, request, linker, harness, library: Path) -> tuple[int, ...]:
        behaviour = getattr(request.scheme, "reg_oc", GOOD)
        if behaviour == UNBUILDABLE:
            raise ValueError("no such loop")
        if behaviour == UNLINKABLE:
            raise NeoCPUError("the linker has had enough")
        library.touch()
        return ()


class FakeSession:
    """A session on a `FakeServer`."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self._connection: socket.socket | None = None

    def connect(self, lease) -> str:
        self._end()
        address = (lease.address.host, lease.address.port)
        self._connection = socket.create_connection(address)
        machine, self._broken = json.loads(self._connection.recv(64))
        return machine

    def time(self, candidate, repeats: int, best: float):
        assert candidate.library.exists()
        return self._behave(candidate) or (candidate.request.scheme.reg_n * 1e-6,) * repeats

    def compare(self, candidates, rounds: int):
        if len(candidates) > 1 and any(c.request.scheme.reg_oc == ALONE for c in candidates):
            raise ValueError("not with others")
        return [(c.request.scheme.reg_n * 1e-6,) * rounds for c in candidates]

    def check(self, candidate):
        if self._broken:
            self._end()
            return Ended(0.0)
        wrong = getattr(candidate.request.scheme, "reg_oc", GOOD) == WRONG
        return "wrong answer" if wrong else None

    def _behave(self, candidate) -> Ended | None:
        behaviour = candidate.request.scheme.reg_oc
        time.sleep(0.01)
        if behaviour == RAISES:
            raise ValueError("a stack\nand the cause")
        if behaviour in (CRASHES, HANGS):
            self._end()
            return Ended(TIMEOUT if behaviour == HANGS else 0.0)
        flag = candidate.library.parent / "killed"
        if behaviour == KILLS_SERVER and not flag.exists():
            flag.touch()
            self._connection.sendall(b"x")
            if candidate.request.scheme.reg_n % 2:  # and hangs, or just ends
                time.sleep(60)
            self._end()
            return Ended(0.0)
        return None

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
