"""Check the weights of an artifact beside whoever loads it."""

from __future__ import annotations

import threading
from typing import Final

from neocpu.runtime.artifact import Artifact
from neocpu.runtime.input_file import PIECE
from neocpu.schedules.errors import UsageError

AT_ONCE: Final = PIECE
"""Bytes of weights that are hashed faster than a thread for it would be worth."""


class _Stopped(Exception):
    """Nobody waits for the result any more."""


class WeightsCheck:
    """The weights' digest, computed by a thread that starts at once.

    It maps the weights' pages in, which the first run would wait for.

    Raises
    ------
    ArtifactError
        If the weights are few and damaged: those are checked at once.
    """

    __slots__ = ("_ended", "_error", "_stop", "_thread")

    def __init__(self, artifact: Artifact) -> None:
        self._error: BaseException | None = None
        self._stop = False
        # Not the thread's own end: an interrupted `join` makes Python take it for ended.
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if artifact.weights.nbytes <= AT_ONCE:
            artifact.verify_weights()
            self._ended.set()
            return
        name = f"neocpu-verify-{artifact.header.name}"
        self._thread = threading.Thread(target=self._run, args=(artifact,), name=name, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it is done.

        Raises
        ------
        ArtifactError
            If the weights are damaged.
        UsageError
            If it was stopped before it was done.
        """
        if not self._ended.is_set():
            self._ended.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it would grow with every call

    def stop(self) -> None:
        """Give up, and wait for the thread to end: some milliseconds."""
        self._stop = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self, artifact: Artifact) -> None:
        try:
            artifact.verify_weights(self._look)
        except _Stopped:
            self._error = UsageError("the module was closed before its weights were checked")
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _look(self, _: int) -> None:
        if self._stop:
            raise _Stopped
