"""Modules whose calls end when a test says so."""

from concurrent.futures import Future
from typing import Any

import numpy as np

from neocpu.runtime.signatures import Signature
from neocpu.tensor_spec import TensorSpec

INPUT = TensorSpec("x", "float32", (2,))
OUTPUT = TensorSpec("y", "float32", (2,))


class FakeModule:
    """``y = 2 x``, of calls that wait for `finish`."""

    def __init__(self, *, log: list[str]) -> None:
        self.signatures = (Signature((INPUT,), (OUTPUT,)),)
        self.calls: list[tuple[Future, Any]] = []
        self.closed = False
        self._log = log

    def wait_verified(self) -> None:
        self._log.append("verified")

    def warmup(self, n: int) -> None:
        self._log.append("warm")

    def submit(self, inputs: Any) -> Future:
        future: Future = Future()
        self.calls.append((future, inputs))
        return future

    def finish(self, error: Exception | None = None) -> None:
        """End the oldest call."""
        future, inputs = self.calls.pop(0)
        if future.set_running_or_notify_cancel():
            if error:
                future.set_exception(error)
            else:
                future.set_result({"y": np.asarray(inputs["x"]) * 2})

    def close(self) -> None:
        self.closed = True
