"""Check the weights of an artifact beside whoever loads it."""

from __future__ import annotations

import threading
from typing import Final

from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_cpus
from neocpu.runtime.artifact import Artifact
from neocpu.runtime.artifact_file.header import WEIGHTS_PIECE

AT_ONCE: Final = WEIGHTS_PIECE
"""Bytes of weights that are hashed faster than a thread for it would be worth."""

MAX_THREADS: Final = 4
"""As many read about as fast as memory gives."""

_LOOK_SECONDS: Final = 0.1


class WeightsCheck:
    """The weights' digest, computed by threads that start at once.

    They leave half of the CPUs to whoever loads; who waits for the result helps. All that maps the
    weights' pages in, which the first run would wait for.

    Raises
    ------
    ArtifactError
        If the weights are few and damaged: those are checked at once.
    """

    __slots__ = ("_artifact", "_digests", "_ended", "_error", "_left", "_stop", "_threads")

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._left = list(reversed(artifact.piece_starts))
        self._digests: dict[int, bytes] = {}
        self._error: BaseException | None = None
        self._stop = False
        # Not the threads' own end: an interrupted `join` makes Python take one for ended.
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        if artifact.weights.nbytes <= AT_ONCE:
            artifact.verify_weights()
            self._ended.set()
            return
        name = f"neocpu-verify-{artifact.header.name}"
        for _ in range(max(1, min(MAX_THREADS, usable_cpus() // 2))):
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self) -> None:
        """Wait until it is done, and help.

        Raises
        ------
        ArtifactError
            If the weights are damaged.
        UsageError
            If it was stopped before it was done.
        """
        if not self._ended.is_set():
            self._work()
            # Somebody who helped may be interrupted, and leave a piece.
            while not self._ended.wait(_LOOK_SECONDS):
                self._work()
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it would grow with every call

    def stop(self) -> None:
        """Give up, and wait for the threads to end: some milliseconds."""
        self._stop = True
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        if not self._ended.is_set():
            self._end(UsageError("the module was closed before its weights were checked"))

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._end(error)

    def _work(self) -> None:
        """Hash pieces until none is left."""
        while not self._stop:
            try:
                start = self._left.pop()
            except IndexError:
                return
            try:
                self._digests[start] = self._artifact.hash_piece(start)
            except BaseException:
                self._left.append(start)
                raise
            # Two threads may both find that all are done, and then find the same.
            if len(self._digests) == len(self._artifact.piece_starts):
                self._compare()

    def _compare(self) -> None:
        try:
            self._artifact.compare(self._digests[start] for start in self._artifact.piece_starts)
        except BaseException as error:
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._ended.set()
