"""`load` an artifact and run it as a `Module`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import ArgumentTypeError, UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.foundation.units import plural
from neocpu.runtime.array_types import AnyArray, ArrayLike
from neocpu.runtime.calls import Calls
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.session import Source, open_session
from neocpu.runtime.thread_pool import ThreadPool, Threads
from neocpu.runtime.unpicklable import Unpicklable

if TYPE_CHECKING:
    from concurrent.futures import Future

    from neocpu.foundation.size_formulas import Size
    from neocpu.runtime.session import Session
    from neocpu.runtime.shape_ranges import Ranges
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
        A file that ``neocpu compile`` wrote, or its content in memory, which must not change while
        the module is open. Memory that starts on a multiple of 128 bytes is used in place; from
        other memory the weights are copied.
    threads : int or "performance", optional
        Number of threads to run on, the calling one included. The default is the number of CPUs
        this process may use (affinity and control-group quota), whatever the artifact was compiled
        for. It is limited by affinity. "performance": see `ThreadPool`.
    pool : ThreadPool, optional
        Threads to run on instead of the module's own. Modules of one pool share them, and their
        calls take turns.
    streams : int or "auto"
        Number of simultaneous calls, for callers that need throughput. Each stream has ``threads``
        threads (by default its share of the CPUs) and its own memory between kernels; all share one
        copy of the weights. "auto" measures which number makes the most calls a second, which takes
        about a second; an artifact compiled for throughput has the number without measuring.
    pin : bool
        Whether each own thread but the calling one stays on one CPU: see `ThreadPool`.
    verify : bool
        Whether the weights are checked against their digest. This runs in the background: `load`
        returns at once, and the first call waits for it and raises if they are damaged. Code and
        header are always checked by `load` itself.
    hugepages : bool
        Whether the weights are copied into huge pages of this process. Calls that stream many
        weights get a few per cent faster. Loading takes 20 ms per 100 MB longer, and processes that
        load the same file no longer share its weights.

    Raises
    ------
    ArtifactError
        The file is missing, truncated, damaged, foreign, or of another format.
    TargetError
        It is compiled for another machine or for instructions this host lacks.
    UsageError
        ``threads`` or ``streams`` is not positive, is far more than the CPUs, or is given together
        with ``pool``; or the pool is closed.
    """
    if pool is not None and (threads is not None or pin):
        raise UsageError("threads= and pin= exclude pool=: a pool has its threads")
    if streams != 1:
        if pool is not None or pin:
            raise UsageError("pool= and pin= exclude streams=: each stream has threads of its own")
        if threads == "performance":
            raise UsageError("threads='performance' is for one stream: give a number for several")
        from neocpu.runtime.streams import load_streams

        session, pools = load_streams(path, threads, streams, verify=verify, hugepages=hugepages)
        return Module(session, pools, pools)
    if pool is not None:
        return Module(open_session(path, pool, verify=verify, hugepages=hugepages), pool, None)
    own = ThreadPool(threads, pin=pin, name="neocpu-submitted")
    try:
        return Module(open_session(path, own, verify=verify, hugepages=hugepages), own, own)
    except BaseException:
        own.close()
        raise


class Module(Unpicklable, Closing):
    """A compiled model, ready to run. Made by `load`.

    It has its own threads, or a pool that it shares with others. It may be called from many threads
    at once. As many calls run at once as there are streams; without streams, one after another,
    each on the thread that makes it and those of the pool. Outputs are new arrays every time, or
    the caller's.

    An input is read in place if it is C-contiguous, has this machine's byte order and starts on a
    multiple of 64 bytes (`aligned_empty` makes such arrays). Any other input is copied once, which
    the logger ``neocpu`` reports at level DEBUG. Inputs must not change during a call.

    A module belongs to the process that loaded it: in a child that is forked later, it can only be
    closed. Load the artifact there; the two modules still share the memory of the weights. All that
    runs the model raises `UsageError` if the module or its pool is closed, or if the module was
    loaded before this process forked, and `ArtifactError` if the weights turn out to be damaged.

    Attributes
    ----------
    threads : int
        Number of threads that a call runs on.
    streams : int
        Number of calls that run at once.
    packing_seconds : float
        Seconds of loading that packing weights took, of a set of shapes.
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
        self._calls: Calls | None = Calls(session)

    @cached_property
    def metadata(self) -> ArtifactHeader:
        """The artifact's header: target, versions, plan, inputs and outputs."""
        return ArtifactHeader.from_json(json.loads(self._header))

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """Inputs and outputs for each set of shapes it is compiled for; most models have one.

        If calls choose extents, these are the inputs and outputs at the typical ones.
        """
        return self._signatures.all

    @property
    def shapes(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """The shapes of each signature's inputs, by name."""
        return tuple(each.shapes for each in self.signatures)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The extents of inputs that calls choose, each in a range; none if shapes are fixed."""
        return () if self._signatures.sized is None else self._signatures.sized.sizes

    @property
    def ranges(self) -> dict[str, Ranges]:
        """The extents of each input, by name: a number, or what it may be.

        An extent that calls choose is one of `sizes`, which tells ``least``, ``most`` and ``step``,
        and whether ``480 in size``. One that follows from others has a ``least`` and a ``most``.
        """
        return self.metadata.input_ranges

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of each input of the first signature, in graph order."""
        return self.signatures[0].inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The same of each output; the first extent of a ``bounded`` one is its most rows."""
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
            The inputs in graph order, as in ``m(x)`` or ``m(a, b)``, or one list or tuple of them.
            They have the dtypes of `inputs`, and the shapes of one of `signatures` or others in
            `ranges`. If signatures differ only in the batch, any other batch is taken too, and
            computed by the fastest sequence of their plans. Inputs are numpy arrays, arrays of any
            library that exports DLPack from the CPU's memory, or buffers, in any strides, alignment
            and byte order. A single mapping from input names to arrays is taken as `run` takes it.
        out : array, or list or tuple of arrays, optional
            Arrays for the results, in graph order: numpy arrays with the dtypes and shapes of the
            signature's outputs, in any strides. They may overlap inputs, which are then copied
            first. If two of them overlap, the later one wins.

        Returns
        -------
        array
            The model's output, or ``out`` if given. A model with several outputs returns a tuple,
            unpacked as in ``boxes, scores = m(x)``; `run` has a precise type for those. A bounded
            output has this run's rows only; with ``out``, it is a view of them. Inputs by name
            give outputs by name.

        Raises
        ------
        UsageError
            The number, dtype or shape of the arrays is wrong, or the module cannot be used.
        ArgumentTypeError
            An argument is no array. This is a `UsageError` too.
        ArtifactError
            The weights turn out to be damaged.
        """
        if named:
            shown = ", ".join(f"{name!r}: {name}" for name in named)
            raise ArgumentTypeError(f"inputs by name are a mapping: m({{{shown}}})")
        return self._usable().of(inputs, out)()

    def run(
        self, inputs: Mapping[str, ArrayLike], *, out: Mapping[str, AnyArray] | None = None
    ) -> dict[str, AnyArray]:
        """Run the model on inputs given by name; return its outputs by name.

        Parameters
        ----------
        inputs : mapping of str to array
            Arrays that a call would take, by input name.
        out : mapping of str to array, optional
            Arrays for all results, by output name.

        Raises
        ------
        UsageError, ArgumentTypeError
            A name is unknown or missing, ``inputs`` is no mapping, or an error of a call.
        """
        return self._usable().named(inputs, out)()

    def run_plan(self, number: int, inputs: Sequence[AnyArray]) -> tuple[AnyArray, ...]:
        """Run a plan by its position among `signatures`, where a call may compose the batch."""
        return self._usable().session.run(number, inputs)

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
            The inputs of the call. They must not change until the future is done.
        out : optional
            Arrays for the results of the call.

        Returns
        -------
        concurrent.futures.Future
            The future result or exception of the call. It may be cancelled while the call is
            queued. With asyncio: ``await asyncio.wrap_future(module.submit(x))``.

        Raises
        ------
        UsageError, ArgumentTypeError
            An error of a call that is found before it is queued.
        """
        return self._pool.submit(self._usable().of(inputs, out))

    def warmup(self, n: int = 3) -> None:
        """Run on zeros, so that later calls find memory and threads ready.

        Each stream runs ``n`` times for each of `signatures`. If another thread closes the module
        meanwhile, the next run raises `UsageError`.
        """
        for number in range(len(self.signatures)):
            zeros = self._usable().session.streams[0].zeros(number)
            for _ in range(n):
                for one in self._usable().session.streams:
                    one.run(number, zeros)

    def wait_verified(self) -> None:
        """Wait for the check of the weights, if there is one."""
        self._usable().session.verify()

    def start_trace(self) -> None:
        """Record from now on when each run, call of a kernel and task takes place.

        Earlier records are dropped. Calls in progress are waited for, and not recorded.
        """
        self._usable().session.start_trace()

    def stop_trace(self) -> Timeline:
        """Stop recording; return what took place since `start_trace`.

        Raises
        ------
        UsageError, NeoCPUError
            `start_trace` was not called, or there was too little memory to record everything.
        """
        from neocpu.runtime.described_calls import describe_calls
        from neocpu.runtime.timeline import Timeline

        events = self._usable().session.stop_trace()
        return Timeline(self._name, describe_calls(self.metadata), events)

    def stream(self, pool: ThreadPool) -> Module:
        """Return another module with the same weights, which runs on another pool at the same time.

        Either may be closed first. A module of several streams raises `UsageError`.
        """
        return Module(self._usable().session.stream(pool), pool, None)

    def close(self) -> None:
        """Wait for calls made so far, then free threads, weights and code. May be repeated.

        A shared pool stays open.
        """
        calls, self._calls = self._calls, None  # those under way refer to it too
        if self._own_pool is not None:
            self._own_pool.close()
        else:
            self._pool.wait()
        del calls

    def __repr__(self) -> str:
        threads = plural(self.threads, "thread")
        streams = "" if self.streams == 1 else f", {self.streams} at once"
        return f"<neocpu.Module {self.metadata.summary}, on {threads}{streams}>"

    def _usable(self) -> Calls:
        calls = self._calls
        if calls is None:
            raise UsageError(f"module '{self._name}' is closed: load the artifact again")
        if self._pool.is_closed:
            whose = f"the thread pool of module '{self._name}'"
            raise UsageError(f"{whose} is closed: load the artifact with another")
        return calls
