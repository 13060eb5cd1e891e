"""`load` an artifact and run it as a `Module`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from neocpu.runtime.artifact import Artifact, check_host, open_artifact
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.inputs import check_named, check_positional
from neocpu.runtime.library import open_library
from neocpu.runtime.session import Session
from neocpu.runtime.worker import Worker
from neocpu.schedules.errors import UsageError
from neocpu.schedules.host import usable_cpus
from neocpu.tensor_spec import TensorSpec

# Threads beyond the CPUs only spin; far beyond, they take the machine down.
THREADS_PER_CPU = 16

AnyArray = np.ndarray[Any, Any]
T = TypeVar("T")


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    *,
    verify: bool = True,
    hugepages: bool = False,
) -> Module:
    """Open a compiled artifact.

    Parameters
    ----------
    path : path
        What ``neocpu compile`` wrote.
    threads : int, optional
        Threads to run on, the calling module's worker included. By default the CPUs this process
        may use (affinity and control-group quota), whatever the artifact was compiled for. More
        than the machine has makes TVM's runtime print a warning, and calls slower.
    verify : bool
        Check the weights against their digest. It happens while the runtime starts; without it a
        file of any size opens at once. Code and header are always checked.
    hugepages : bool
        Copy the weights into huge pages of this process. Calls that stream many weights get a few
        per cent faster; opening takes 20 ms per 100 MB longer, and processes that open the same
        file no longer share its weights.

    Raises
    ------
    ArtifactError
        If the file is missing, truncated, damaged, foreign, or of other library versions.
    TargetError
        If it is compiled for another machine or for instructions this host lacks.
    UsageError
        If ``threads`` is not positive.
    """
    limit = THREADS_PER_CPU * (os.cpu_count() or 1)
    if threads is not None and not 1 <= threads <= limit:
        raise UsageError(f"threads must be from 1 to {limit} on this machine, got {threads}")
    with open_artifact(path) as artifact:
        check_host(artifact.header, artifact.path)
        threads = usable_cpus() if threads is None else threads
        return Module(artifact, threads, verify=verify, hugepages=hugepages)


class Module:
    """A compiled model, ready to run. Made by `load`.

    One virtual machine and one worker thread with its own pool of ``threads`` threads. It may be
    called from many threads at once; calls run one after another. The caller's CPU affinity never
    changes, and outputs are new arrays every time.

    Attributes
    ----------
    metadata : ArtifactHeader
        The artifact's header: target, versions, plan, inputs and outputs.
    threads : int
        How many threads a call runs on.
    """

    def __init__(self, artifact: Artifact, threads: int, *, verify: bool, hugepages: bool) -> None:
        self.metadata: ArtifactHeader = artifact.header
        self.threads = threads
        self._worker = Worker(f"neocpu-{artifact.header.name}")
        self._finalizer = weakref.finalize(self, self._worker.stop)
        try:
            # On the worker, beside the import of the runtime on this thread. It also maps the
            # weights' pages in, which the first run would wait for.
            verified = self._worker.submit(artifact.verify_weights) if verify else None
            library = open_library(artifact)
            if verified is not None:
                verified.result()
            self._session: Session | None = self._on_worker(
                partial(Session, artifact, library, threads, hugepages=hugepages)
            )
        except BaseException:
            self._finalizer()
            raise

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each input, in graph order."""
        return self.metadata.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each output, in graph order.

        Where a specification is ``bounded``, its first extent is the most rows an output can have.
        """
        return self.metadata.outputs

    def __call__(self, inputs: Any) -> AnyArray | tuple[AnyArray, ...]:
        """Run the model.

        Parameters
        ----------
        inputs : array, or list or tuple of arrays
            In graph order, each with the dtype and shape of `inputs`. Any strides, alignment and
            byte order.

        Returns
        -------
        array or tuple of arrays
            One array if the model has one output. A bounded output has the rows of this run.

        Raises
        ------
        UsageError
            If the number, dtype or shape of the inputs is wrong, or the module is closed.
        """
        outputs = self._run(check_positional(self.inputs, inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Mapping[str, Any]) -> dict[str, AnyArray]:
        """Run the model on inputs given by name; return its outputs by name.

        Raises
        ------
        UsageError
            If a name is unknown or missing, a dtype or shape is wrong, or the module is closed.
        """
        outputs = self._run(check_named(self.inputs, inputs))
        return dict(zip((spec.name for spec in self.outputs), outputs, strict=True))

    def warmup(self, n: int = 3) -> None:
        """Run ``n`` times on zeros, so that later calls find memory and threads ready."""
        zeros = [np.zeros(spec.shape, spec.dtype) for spec in self.inputs]
        for _ in range(n):
            self._run(zeros)

    def close(self) -> None:
        """Wait for calls under way, then free threads, weights and code. May be repeated."""
        self._finalizer()
        self._worker.stop()
        self._session = None

    def __enter__(self) -> Module:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return (
            f"<neocpu.Module {self.metadata.name}: {inputs} -> {outputs}; "
            f"{self.metadata.target}, {self.threads} threads>"
        )

    def _run(self, arrays: list[AnyArray]) -> tuple[AnyArray, ...]:
        session = self._session
        if session is None:
            raise UsageError(_closed(self.metadata.name))
        return self._on_worker(partial(session.run, arrays))

    def _on_worker(self, call: Callable[[], T]) -> T:
        job = self._worker.submit(call)
        if job is None:
            raise UsageError(_closed(self.metadata.name))
        return job.result()


def _closed(name: str) -> str:
    return f"module '{name}' is closed: load the artifact again"
