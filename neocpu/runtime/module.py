"""`load` an artifact and run it as a `Module`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import ArgumentTypeError, UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.foundation.units import plural
from neocpu.runtime.array_types import AnyArray, ArrayLike
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.inputs import check_named, check_positional
from neocpu.runtime.outputs import check_named_out, check_positional_out
from neocpu.runtime.session import Source, open_session
from neocpu.runtime.thread_pool import ThreadPool, Threads
from neocpu.runtime.unpicklable import Unpicklable

if TYPE_CHECKING:
    from concurrent.futures import Future

    from neocpu.runtime.composed.composed_batches import ComposedBatches
    from neocpu.runtime.session import Session
    from neocpu.runtime.signatures import Signature
    from neocpu.runtime.streams import StreamedSession, StreamPools
    from neocpu.runtime.timeline import Timeline


def load(
    path: Source,
    threads: Threads = None,
    *,
    pool: ThreadPool | None = None,
    streams: int | Literal["auto"] = 1,
    pin: bool = False,
    verify: bool = True,
    hugepages: bool = False,
) -> Module:
    """Open a compiled artifact.

    Parameters
    ----------
    path : path or buffer
        What ``neocpu compile`` wrote: a file, or its content in memory, which must not change as
        long as the module is open. Memory that starts on a multiple of 128 bytes is used as it is,
        of other memory the weights are copied.
    threads : int or "performance", optional
        Threads to run on, the calling one included. By default the CPUs this process may use
        (affinity and control-group quota), whatever the artifact was compiled for; at most as many
        as affinity allows. "performance": see `ThreadPool`.
    pool : ThreadPool, optional
        Threads to run on, instead of the module's own: modules of one pool share them, and their
        calls take turns.
    streams : int or "auto"
        How many calls are made at once, for callers that care for how many are done in a second:
        each stream has ``threads`` threads, by default its share of the CPUs, and memory between
        kernels of its own; weights are there once. "auto" measures how many make the most calls,
        which takes a second or so; an artifact that was compiled for throughput says it at once.
    pin : bool
        Keep each of the module's own threads but the calling one on one CPU: see `ThreadPool`.
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
        If the file is missing, truncated, damaged, foreign, or of another format.
    TargetError
        If it is compiled for another machine or for instructions this host lacks.
    UsageError
        If ``threads`` or ``streams`` is not positive or far more than CPUs, or given beside
        ``pool``, or the pool is closed.
    """
    if pool is not None and (threads is not None or pin):
        raise UsageError("threads= and pin= exclude pool=: a pool has its threads")
    if streams != 1:
        if pool is not None or pin:
            raise UsageError("pool= and pin= exclude streams=: each stream has threads of its own")
        if threads == "performance":
            raise UsageError("threads='performance' is for one stream: give a number for several")
        return _load_streams(path, threads, streams, verify=verify, hugepages=hugepages)
    if pool is not None:
        return Module(open_session(path, pool, verify=verify, hugepages=hugepages), pool, None)
    own = ThreadPool(threads, pin=pin, name="neocpu-submitted")
    try:
        return Module(open_session(path, own, verify=verify, hugepages=hugepages), own, own)
    except BaseException:
        own.close()
        raise


def _load_streams(
    path: Source,
    threads: int | None,
    streams: int | Literal["auto"],
    *,
    verify: bool,
    hugepages: bool,
) -> Module:
    from neocpu.runtime.streams import fastest_streams, open_streams, planned_streams

    if streams == "auto":
        if (planned := planned_streams(path, threads)) is not None:
            streams, threads = planned
        else:
            streams = fastest_streams(path, threads, hugepages=hugepages)
    session, pools = open_streams(path, streams, threads, verify=verify, hugepages=hugepages)
    return Module(session, pools, pools)


class Module(Unpicklable, Closing):
    """A compiled model, ready to run. Made by `load`.

    It has threads of its own or a pool shared with others. It may be called from many threads at
    once; calls run one after another, each on the thread that makes it and those of the pool, or
    as many at once as there are streams. Outputs are new arrays every time, or the caller's.

    An input that is C-contiguous, of this machine's byte order and starts on a multiple of 64
    bytes (`aligned_empty` makes such arrays) is read where it lies; any other is copied once, which
    the logger ``neocpu`` says at level DEBUG. Inputs must not change during a call.

    A module belongs to the process that loaded it: in a child that is forked later it can only be
    closed. Load it there; the two share its weights' memory all the same.

    Attributes
    ----------
    threads : int
        How many threads a call runs on.
    streams : int
        How many calls run at once.
    packing_seconds : float
        What it took, of loading, to pack weights: of sets of shapes, those that the file has in
        another packing.
    """

    _instead = "neocpu.load() the artifact in each process, by its path"

    def __init__(
        self,
        session: Session | StreamedSession,
        pool: ThreadPool | StreamPools,
        own_pool: ThreadPool | StreamPools | None,
    ) -> None:
        self.threads = pool.threads
        self.streams = len(session.streams)
        self.packing_seconds = session.streams[0].packing_seconds
        self._name = session.name
        self._signatures = session.signatures
        self._header = session.metadata
        self._pool = pool
        self._own_pool = own_pool
        self._session: Session | StreamedSession | None = session
        self._batches: ComposedBatches | None = None

    @cached_property
    def metadata(self) -> ArtifactHeader:
        """The artifact's header: target, versions, plan, inputs and outputs."""
        return ArtifactHeader.from_json(json.loads(self._header))

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """Inputs and outputs of each of the shapes that it is compiled for; of most models, one."""
        return self._signatures.all

    @property
    def shapes(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """The shapes of the inputs of each of `signatures`, by name."""
        return tuple(each.shapes for each in self.signatures)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each input, in graph order; of the first of `signatures`."""
        return self.signatures[0].inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each output, in graph order; of the first of `signatures`.

        Where a specification is ``bounded``, its first extent is the most rows an output can have.
        """
        return self.signatures[0].outputs

    @overload
    def __call__(
        self, inputs: Mapping[str, ArrayLike], /, *, out: Mapping[str, AnyArray] | None = None
    ) -> dict[str, AnyArray]: ...

    @overload
    def __call__(
        self,
        *inputs: ArrayLike | Sequence[ArrayLike],
        out: AnyArray | Sequence[AnyArray] | None = None,
    ) -> AnyArray: ...

    def __call__(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Run the model.

        Parameters
        ----------
        *inputs : array
            In graph order, as ``m(x)`` or ``m(a, b)``; one list or tuple of them is taken too. Each
            has the dtype and shape of `inputs`, or all have the shapes of another of `signatures`;
            or, where these differ in the batch, of any other batch, which is done by their plans
            one after the other, those that take least. Any strides, alignment and byte order;
            arrays of numpy, or of any library that exports DLPack from the CPU's memory, or
            buffers. A mapping from each input's name to its array is what `run` takes.
        out : array, or list or tuple of arrays, optional
            Where to write the results, in graph order: numpy arrays with the dtype and shape of
            the signature's outputs, in any strides. They may overlap inputs, which are then copied
            first. If two of them overlap, the later one wins.

        Returns
        -------
        array
            The model's output; those of ``out`` if given. A model of several outputs returns a
            tuple of them, to be unpacked as in ``boxes, scores = m(x)``; `run` has a precise type
            for those. A bounded output has the rows of this run, of ``out`` a view of them. Inputs
            by name give outputs by name.

        Raises
        ------
        UsageError
            If the number, dtype or shape of the arrays is wrong, the module or its pool is closed,
            or it was loaded before this process forked.
        ArgumentTypeError
            If something is no array. It is a `UsageError` too.
        ArtifactError
            If the weights turn out to be damaged.
        """
        if named:
            shown = ", ".join(f"{name!r}: {name}" for name in named)
            raise ArgumentTypeError(f"inputs by name are a mapping: m({{{shown}}})")
        return self._call(inputs, out)()

    def run(
        self, inputs: Mapping[str, ArrayLike], *, out: Mapping[str, AnyArray] | None = None
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
        ArgumentTypeError
            If ``inputs`` is no mapping, or as for a call.
        ArtifactError
            As for a call.
        """
        return self._named_call(inputs, out)()

    def run_plan(self, number: int, inputs: Sequence[AnyArray]) -> tuple[AnyArray, ...]:
        """Run the plan of one of `signatures`; a call may do its batch by others.

        Parameters
        ----------
        number : int
            Which of them.
        inputs : sequence of array
            In graph order, with the signature's shapes.

        Raises
        ------
        UsageError, ArtifactError
            As for a call.
        """
        return self._usable().run(number, inputs)

    @overload
    def submit(
        self, inputs: Mapping[str, ArrayLike], /, *, out: Mapping[str, AnyArray] | None = None
    ) -> Future[dict[str, AnyArray]]: ...

    @overload
    def submit(
        self,
        *inputs: ArrayLike | Sequence[ArrayLike],
        out: AnyArray | Sequence[AnyArray] | None = None,
    ) -> Future[AnyArray]: ...

    def submit(self, *inputs: Any, out: Any = None) -> Future[Any]:
        """Queue a call and return at once.

        Parameters
        ----------
        *inputs : array, or one mapping of str to array
            As for a call. They must not change until the future is done.
        out : optional
            As for a call.

        Returns
        -------
        concurrent.futures.Future
            Of what the call would return or raise. It may be cancelled while the call is queued.
            With asyncio: ``await asyncio.wrap_future(module.submit(x))``.

        Raises
        ------
        UsageError, ArgumentTypeError
            As for a call, for what is wrong from the start.
        """
        return self._pool.submit(self._call(inputs, out))

    def warmup(self, n: int = 3) -> None:
        """Run on zeros, so that later calls find memory and threads ready.

        Each stream does so ``n`` times for each of `signatures`.

        Raises
        ------
        UsageError, ArtifactError
            As for a call: of the next one, if another thread closes the module.
        """
        for number in range(len(self.signatures)):
            zeros = self._usable().streams[0].zeros(number)
            for _ in range(n):
                for one in self._usable().streams:
                    one.run(number, zeros)

    def wait_verified(self) -> None:
        """Wait until the weights are checked, if they are to be.

        Raises
        ------
        ArtifactError
            If they are damaged.
        UsageError
            If the module is closed, or was loaded before this process forked.
        """
        self._usable().verify()

    def start_trace(self) -> None:
        """Note from now on when each run, call of a kernel and task takes place.

        What was noted before and not asked for is forgotten. Calls in progress are waited for, and
        not noted. Calls of a traced module compute the same.

        Raises
        ------
        UsageError
            If the module is closed, or was loaded before this process forked.
        """
        self._usable().start_trace()

    def stop_trace(self) -> Timeline:
        """Note nothing more; return what took place since `start_trace`.

        Raises
        ------
        UsageError
            If `start_trace` was not called, the module is closed, or it was loaded before this
            process forked.
        NeoCPUError
            If there was too little memory to note everything.
        """
        from neocpu.runtime.described_calls import describe_calls
        from neocpu.runtime.timeline import Timeline

        events = self._usable().stop_trace()
        return Timeline(self._name, describe_calls(self.metadata), events)

    def stream(self, pool: ThreadPool) -> Module:
        """Return another module of the same weights, which runs on another pool at the same time.

        Either may be closed first.

        Raises
        ------
        UsageError
            If this module or the pool is closed, it has several streams, or it was loaded before
            this process forked.
        """
        return Module(self._usable().stream(pool), pool, None)

    def close(self) -> None:
        """Wait for calls made so far, then free threads, weights and code. May be repeated.

        A pool that the module shares stays open.
        """
        session, self._session = self._session, None  # which those calls have too
        if self._own_pool is not None:
            self._own_pool.close()
        else:
            self._pool.wait()
        self._batches = None  # which has it as well
        del session

    def __repr__(self) -> str:
        streams = "" if self.streams == 1 else f", {self.streams} at once"
        return (
            f"<neocpu.Module {self.metadata.summary}, on {plural(self.threads, 'thread')}{streams}>"
        )

    def _call(self, inputs: Sequence[Any], out: Any) -> Callable[[], Any]:
        """Check arguments, which are arrays or one mapping; return the call to make."""
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return self._named_call(inputs[0], out)
        return self._positional_call(inputs, out)

    def _positional_call(self, inputs: Sequence[Any], out: Any) -> Callable[[], Any]:
        """Check arguments; return the call to make."""
        session = self._usable()
        signature, arrays = check_positional(self._signatures, inputs)
        results = None if out is None else check_positional_out(signature.outputs, out)

        def call() -> Any:
            outputs = self._run(session, signature, arrays, results)
            return outputs[0] if len(outputs) == 1 else outputs

        return call

    def _named_call(self, inputs: Mapping[str, Any], out: Any) -> Callable[[], dict[str, AnyArray]]:
        """Check arguments; return the call to make."""
        session = self._usable()
        signature, arrays = check_named(self._signatures, inputs)
        specs = signature.outputs
        results = None if out is None else check_named_out(specs, out)

        def call() -> dict[str, AnyArray]:
            outputs = self._run(session, signature, arrays, results)
            return dict(zip((spec.name for spec in specs), outputs, strict=True))

        return call

    def _run(
        self,
        session: Session | StreamedSession,
        signature: Signature,
        arrays: Sequence[AnyArray],
        out: Sequence[AnyArray] | None,
    ) -> tuple[AnyArray, ...]:
        """Run a signature's plan, or those that a batch is composed of."""
        if len(self.signatures) == 1:
            return session.run(0, arrays, out)
        if (batches := self._batches) is None:
            from neocpu.runtime.composed.composed_batches import ComposedBatches

            batches = ComposedBatches(session)
            self._batches = None if self._session is None else batches  # closed meanwhile?
        return batches.run(signature, arrays, out)

    def _usable(self) -> Session | StreamedSession:
        """Return the loaded model.

        Raises
        ------
        UsageError
            If it, or its pool, is closed.
        """
        session = self._session
        if session is None:
            raise UsageError(f"module '{self._name}' is closed: load the artifact again")
        if self._pool.is_closed:
            raise UsageError(
                f"the thread pool of module '{self._name}' is closed: "
                "load the artifact with another"
            )
        return session
