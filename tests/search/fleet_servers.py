"""A TVM RPC tracker and servers on loopback, each in a process group of its own.

They start as by `python -m tvm.exec.rpc_tracker` and `rpc_server`, but TVM is imported only once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from neocpu.search.measuring.rpc_tracker import Address

FIRST_PORT, LAST_PORT = 29190, 29990


@dataclass(frozen=True)
class Fleet:
    """The tracker's address, and the process group of each server."""

    tracker: Address
    servers: tuple[int, ...]


@contextlib.contextmanager
def fleet(key: str, count: int) -> Iterator[Fleet]:
    """Run a tracker and ``count`` servers of ``key``."""
    process = subprocess.Popen(
        [sys.executable, __file__, key, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    port, tracker, *servers = json.loads(process.stdout.readline())
    try:
        yield Fleet(Address("127.0.0.1", port), tuple(servers))
    finally:
        for group in (tracker, *servers):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _fork(start, *arguments, **options) -> tuple[int, int]:
    """Start a tracker or server in a separate process; return its port and process group."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgrp()
        state = start(*arguments, **options)
        os.write(writing, json.dumps(state.port).encode())
        os.close(writing)
        state.thread.join()
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        return json.load(pipe), child


def _main(key: str, count: str) -> None:
    from tvm.rpc import connect_tracker
    from tvm.rpc.server import PopenRPCServerState
    from tvm.rpc.tracker import PopenTrackerServerState

    at = ("127.0.0.1", FIRST_PORT, LAST_PORT)
    port, tracker = _fork(PopenTrackerServerState, *at)
    servers = [
        _fork(PopenRPCServerState, *at, tracker_addr=("127.0.0.1", port), key=key)[1]
        for _ in range(int(count))
    ]
    # A server answers before it has registered.
    session = connect_tracker("127.0.0.1", port)
    while len(session.summary()["server_info"]) < int(count):
        time.sleep(0.05)
    print(json.dumps([port, tracker, *servers]), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _main(*sys.argv[1:])
