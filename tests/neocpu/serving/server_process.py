"""``neocpu serve`` in a separate process."""

import json
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class ServerProcess:
    """A server on a free port; ready when made."""

    def __init__(self, *arguments: str | Path) -> None:
        self._log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "neocpu",
                "serve",
                *map(str, arguments),
                "--port",
                "0",
                "--json",
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(timeout=30)
            raise AssertionError(f"no server: {self.log()}")
        self.ready: dict[str, Any] = json.loads(line)
        self.url: str = self.ready["url"].removeprefix("http://")
        parts = urlsplit(self.ready["url"])
        assert parts.hostname is not None
        assert parts.port is not None
        self.address = (parts.hostname, parts.port)

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = 60) -> int:
        return self.process.wait(timeout=timeout)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
