"""`load` an artifact and run it as a `Module`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import plural
from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.runtime.artifact import Artifact, check_host, open_artifact
from neocpu.runtime.artifact_file.header import ArtifactHeader
from neocpu.runtime.inputs import check_named, check_positional
from neocpu.runtime.library import open_library
from neocpu.runtime.outputs import check_named_out, check_positional_out
from neocpu.runtime.session import Session
from neocpu.runtime.thread_pool import PoolUnavailable, ThreadPool, check_threads
from neocpu.runtime.unpicklable import Unpicklable
from neocpu.runtime.weights_check import WeightsCheck
from neocpu.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from concurrent.futures import Future

AnyArray: TypeAlias = np.ndarray[Any, Any]
Outputs: TypeAlias = AnyArray | tuple[AnyArray, ...]
T = TypeVar("T")


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    *,
    pool: ThreadPool | None = None,
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
    pool : ThreadPool, optional
        Threads to run on, instead of the module's own: modules of one pool share them, and their
        calls take turns.
    verify : bool
        Check the weights against their digest. It happens beside the caller, who gets the module
        at once; the first call waits for it, and raises if they are damaged. Code and header are
        always checked, here.
    hugepages : bool
        Copy the weights into huge pages of this process. Calls that stream many weights get a few
        per cent faster; opening takes 20 ms per 100 MB longer, and processes that open the same
        file no longer share its weights.

    Raises
    ------
    ArtifactError
        If the file is missing, truncated, damaged, foreign, or of other library versions.
    TargetError
        If it is compiled for another machine or for instructions this host lacks, or TVM's runtime
        is not installed.
    UsageError
        If ``threads`` is not positive, or given beside ``pool``, or the pool is closed.
    """
    if pool is None:
        check_threads(threads)
    elif threads is not None:
        raise UsageError("threads= and pool= exclude each other: a pool has its number of threads")
    else:
        pool.check_open()
    with open_artifact(path) as artifact:
        check_host(artifact.header, artifact.path)
        return Module(artifact, threads, pool, verify=verify, hugepages=hugepages)


class Module(Unpicklable):
    """A compiled model, ready to run. Made by `load`.

    One virtual machine, and threads of its own or a pool shared with others. It may be called from
    many threads at once; calls run one after another. The caller's CPU affinity never changes, and
    outputs are new arrays every time, or the caller's.

    An input that is C-contiguous, of this machine's byte order and starts on a multiple of 64
    bytes (`aligned_empty` makes such arrays) is read where it lies; any other is copied once, which
    the logger ``neocpu`` says at level DEBUG. Inputs must not change during a call.

    A module belongs to the process that loaded it: in a child that is forked later it can only be
    closed. Load it there; the two share its weights' memory all the same.

    Attributes
    ----------
    metadata : ArtifactHeader
        The artifact's header: target, versions, plan, inputs and outputs.
    threads : int
        How many threads a call runs on.
    """

    _instead = "neocpu.load() the artifact in each process, by its path"

    def __init__(
        self,
        artifact: Artifact,
        threads: int | None,
        pool: ThreadPool | None,
        *,
        verify: bool,
        hugepages: bool,
    ) -> None:
        self.metadata: ArtifactHeader = artifact.header
        library = open_library(artifact)
        self._check = WeightsCheck(artifact) if verify else None
        self._owns_pool = pool is None
        self._pool = pool or ThreadPool(threads, name=f"neocpu-{artifact.header.name}")
        self.threads = self._pool.threads
        self._session: Session | None = None
        try:
            # Not on the pool's thread, which may be busy with other modules.
            self._session = Session(artifact, library, hugepages=hugepages)
        except BaseException:
            self.close()
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

    def __call__(self, inputs: Any, out: Any = None) -> Outputs:
        """Run the model.

        Parameters
        ----------
        inputs : array, or list or tuple of arrays
            In graph order, each with the dtype and shape of `inputs`. Any strides, alignment and
            byte order; arrays of numpy, or of any library that exports DLPack from the CPU's
            memory, or buffers.
        out : array, or list or tuple of arrays, optional
            Where to write the results, in graph order: numpy arrays with the dtype and shape of
            `outputs`, in any strides. They may overlap inputs, which are then copied first. If two
            of them overlap, the later one wins.

        Returns
        -------
        array or tuple of arrays
            One array if the model has one output; those of ``out`` if given. A bounded output has
            the rows of this run, of ``out`` a view of them.

        Raises
        ------
        UsageError
            If the number, dtype or shape of the arrays is wrong, the module or its pool is closed,
            or it was loaded before this process forked.
        ArtifactError
            If the weights turn out to be damaged.
        """
        return self._on_pool(self._positional_call(inputs, out))

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None
    ) -> dict[str, AnyArray]:
        """Run the model on inputs given by name; return its outputs by name.

        Parameters
        ----------
        inputs : mapping of str to array
            As for a call.
        out : mapping of str to array, optional
            Where to write the results, all of them; as for a call.

        Raises
        ------
        UsageError
            If a name is unknown or missing, or as for a call.
        ArtifactError
            As for a call.
        """
        return self._on_pool(self._named_call(inputs, out))

    def submit(self, inputs: Any, out: Any = None) -> Future[Any]:
        """Queue a call and return at once.

        Parameters
        ----------
        inputs : array, or list or tuple of arrays, or mapping of str to array
            As for a call, or for `run`. They must not change until the future is done.
        out : optional
            As for a call, or for `run`.

        Returns
        -------
        concurrent.futures.Future
            Of what the call, or `run`, would return or raise. It may be cancelled while the call
            is queued. With asyncio: ``await asyncio.wrap_future(module.submit(x))``.

        Raises
        ------
        UsageError
            As for a call, for what is wrong from the start.
        """
        named = isinstance(inputs, Mapping)
        call = self._named_call(inputs, out) if named else self._positional_call(inputs, out)
        try:
            return self._pool.submit(call)
        except PoolUnavailable:
            raise self._refusal() from None

    def warmup(self, n: int = 3) -> None:
        """Run ``n`` times on zeros, so that later calls find memory and threads ready.

        Raises
        ------
        UsageError, ArtifactError
            As for a call.
        """
        zeros = [aligned_empty(spec.shape, spec.dtype) for spec in self.inputs]
        for array in zeros:
            array.fill(0)
        for _ in range(n):
            self._on_pool(partial(self._execute, zeros, None))

    def wait_verified(self) -> None:
        """Wait until the weights are checked, if they are to be.

        Raises
        ------
        ArtifactError
            If they are damaged.
        UsageError
            If the module is closed, or was loaded before this process forked.
        """
        if self._pool.orphaned or self._session is None:
            raise self._refusal()
        if self._check is not None:
            self._check.wait()

    def close(self) -> None:
        """Wait for calls made so far, then free threads, weights and code. May be repeated.

        A pool that the module shares stays open.
        """
        if self._pool.orphaned:  # its threads are the parent's
            return
        if self._owns_pool:
            self._pool.close()
        elif self._session is not None:
            try:
                self._pool.call(_nothing)  # after the calls of this module
            except PoolUnavailable:
                self._pool.close()  # somebody else has begun to: it finishes them first
        self._session = None
        if self._check is not None:
            self._check.stop()

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
        return f"<neocpu.Module {self.metadata.summary}, on {plural(self.threads, 'thread')}>"

    def _positional_call(self, inputs: Any, out: Any) -> Callable[[], Outputs]:
        """Check arguments; return the call that the pool shall make."""
        arrays = check_positional(self.inputs, inputs)
        results = None if out is None else check_positional_out(self.outputs, out)

        def call() -> Outputs:
            outputs = self._execute(arrays, results)
            return outputs[0] if len(outputs) == 1 else outputs

        return call

    def _named_call(self, inputs: Mapping[str, Any], out: Any) -> Callable[[], dict[str, AnyArray]]:
        """Check arguments; return the call that the pool shall make."""
        arrays = check_named(self.inputs, inputs)
        results = None if out is None else check_named_out(self.outputs, out)

        def call() -> dict[str, AnyArray]:
            outputs = self._execute(arrays, results)
            return dict(zip((spec.name for spec in self.outputs), outputs, strict=True))

        return call

    def _execute(self, arrays: list[AnyArray], out: list[AnyArray] | None) -> tuple[AnyArray, ...]:
        """Run the model, on the pool's first thread."""
        session = self._session
        if session is None:
            raise self._refusal()
        if self._check is not None:
            # Before the run and not after it: damaged indices could lead a kernel anywhere.
            self._check.wait()
        return session.run(arrays, out)

    def _on_pool(self, call: Callable[[], T]) -> T:
        try:
            return self._pool.call(call)
        except PoolUnavailable:
            raise self._refusal() from None

    def _refusal(self) -> UsageError:
        """Return why there can be no more calls."""
        name = self.metadata.name
        if self._pool.orphaned:
            return UsageError(
                f"module '{name}' was loaded before this process forked: load it in the child"
            )
        if self._session is None or self._owns_pool:
            return UsageError(f"module '{name}' is closed: load the artifact again")
        return UsageError(
            f"the thread pool of module '{name}' is closed: load the artifact with another"
        )


def _nothing() -> None:
    """Wait for nothing but one's turn."""
