"""Requests of the Open Inference Protocol, written by hand, for tests to modify."""

import json
import socket
from dataclasses import dataclass
from typing import Any

import numpy as np

DATATYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32"}
DATATYPES |= {"uint8": "UINT8", "bool": "BOOL", "float16": "FP16", "int8": "INT8"}


def tensor(name: str, array: np.ndarray, **changes: Any) -> dict[str, Any]:
    """Return an input with its data in JSON; ``changes`` replace or add fields, None removes."""
    entry = {
        "name": name,
        "datatype": DATATYPES[array.dtype.name],
        "shape": list(array.shape),
        "data": array.reshape(-1).tolist(),
        **changes,
    }
    return {key: value for key, value in entry.items() if value is not None}


def binary_tensor(name: str, array: np.ndarray, **changes: Any) -> dict[str, Any]:
    """Return an input whose data follow the JSON."""
    size = {"binary_data_size": array.nbytes}
    return tensor(name, array, **{"data": None, "parameters": size, **changes})


def body(*inputs: dict[str, Any], **fields: Any) -> bytes:
    """Return a request's JSON."""
    return json.dumps({"inputs": list(inputs), **fields}).encode()


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.content)


def head(path: str, headers: dict[str, Any], method: str = "POST") -> bytes:
    """Return the head of an HTTP request, unchecked."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class NoAnswerError(Exception):
    """The server closed the connection before the first byte of an answer."""


class Connection:
    """A keep-alive connection that sends any bytes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self._stream = self.socket.makefile("rb")

    def post(self, path: str, content: bytes, json_bytes: int | None = None) -> Answer:
        headers: dict[str, Any] = {"Content-Length": len(content)}
        if json_bytes is not None:
            headers["Inference-Header-Content-Length"] = json_bytes
        return self.exchange(head(path, headers) + content)

    def get(self, path: str) -> Answer:
        return self.exchange(head(path, {}, "GET"))

    def exchange(self, data: bytes) -> Answer:
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise NoAnswerError from error
        return self.receive()

    def receive(self) -> Answer:
        try:
            status = self._stream.readline()
        except ConnectionError as error:
            raise NoAnswerError from error
        if not status:
            raise NoAnswerError
        headers = {}
        while line := self._stream.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", 0))
        content = self._stream.read(length)
        assert len(content) == length, "the answer is cut off"
        return Answer(int(status.split()[1]), headers, content)

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
