"""A model that the library has loaded, and its runs on arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_int64, c_size_t
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.errors import ArgumentTypeError, UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.aligned_memory import address_of, aligned_empty
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.binding import (
    Description,
    Event,
    Handle,
    Input,
    Options,
    Output,
    encoded_path,
    library,
    made_by,
)
from neocpu.runtime.guarding import is_guarded
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature
from neocpu.runtime.thread_pool import ThreadPool

if TYPE_CHECKING:
    from neocpu.foundation.size_formulas import Size
    from neocpu.runtime.guarding.kernel_calls import Interception
    from neocpu.runtime.timeline import TraceEvent

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"
"""The path of a file, or its content in any object with a buffer."""

_ALIGN: Final = 64
"""The alignment, in bytes, of arrays that kernels read or write in place."""


def open_session(
    source: Source, pool: ThreadPool, *, verify: bool = True, hugepages: bool = False
) -> Session:
    """Load a model, to run on a pool."""
    core = library()
    used = pool.handle  # keeps the pool alive during loading; the model then keeps its threads
    options = Options(trust_weights=not verify, huge_pages=hugepages, pool=used.address)
    memory: AnyArray | None = None
    if isinstance(source, str | os.PathLike):
        address = made_by(core.neocpu_load, encoded_path(source), byref(options))
    else:
        memory = _bytes_of(source)
        place = address_of(memory)
        address = made_by(core.neocpu_open_memory, place, memory.nbytes, byref(options))
    return Session(Handle(address, core.neocpu_free, memory))


class Session:
    """A loaded model, freed with the last reference to it. `open_session` makes one."""

    __slots__ = (
        "_core",
        "_guard",
        "_handle",
        "_tracing",
        "metadata",
        "name",
        "packing_seconds",
        "signatures",
    )

    def __init__(self, handle: Handle) -> None:
        self._core = core = library()
        self._handle = handle
        address = handle.address
        description: Description = core.neocpu_describe(address).contents
        self.name: Final[str] = description.name.decode()
        self.metadata: Final[bytes] = core.neocpu_metadata(address)
        self.signatures: Final = _signatures(handle, description)
        self.packing_seconds: Final[float] = description.packing / 1e9
        self._tracing = Lock()
        self._guard: Any = None
        if is_guarded():
            from neocpu.runtime.guarding.guard import Guard

            self._guard = Guard()
            self._guard.attach(self._handle)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The extents of inputs that a call chooses; none if all shapes are fixed."""
        return () if self.signatures.sized is None else self.signatures.sized.sizes

    @property
    def streams(self) -> tuple[Session, ...]:
        return (self,)

    def stream(self, pool: ThreadPool) -> Session:
        """Return a session with the same weights and an arena of its own, to run on another pool.

        Raises UsageError: this process is a child of the one that loaded it, or the pool is closed.
        """
        used, mine = pool.handle, self._handle
        options = Options(pool=used.address)
        address = made_by(self._core.neocpu_load_stream, mine.address, byref(options))
        return Session(Handle(address, self._core.neocpu_free, mine.memory))

    def run(
        self, number: int, inputs: Sequence[AnyArray], out: Sequence[AnyArray] | None = None
    ) -> tuple[AnyArray, ...]:
        """Run the model once, from any thread. Runs on one pool take turns.

        Arrays are in graph order, with the signature's shapes and dtypes, in any strides, alignment
        and byte order; ``out`` may overlap inputs. Returns the outputs, with the rows that count:
        new arrays, or ``out`` and views of it.
        """
        signature = self.signatures.all[number]
        return self._run(self._core.neocpu_run_signature, number, signature, inputs, out)

    def run_sizes(
        self,
        sizes: tuple[int, ...],
        inputs: Sequence[AnyArray],
        out: Sequence[AnyArray] | None = None,
    ) -> tuple[AnyArray, ...]:
        """Run a model that takes ranges of extents once, at some sizes, as `run` does."""
        sized = self.signatures.sized
        assert sized is not None
        chosen = (c_int64 * len(sizes))(*sizes)
        return self._run(self._core.neocpu_run_sizes, chosen, sized.at(sizes), inputs, out)

    def _run(
        self,
        function: Callable[..., int],
        choice: Any,
        signature: Signature,
        inputs: Sequence[AnyArray],
        out: Sequence[AnyArray] | None,
    ) -> tuple[AnyArray, ...]:
        """Call a function of the library that runs the model at its ``choice`` of shapes."""
        read = _readable(signature.inputs, inputs, out)
        written = writable(signature.outputs, out)
        given = (Input * len(read))(*(Input(address_of(one), one.nbytes) for one in read))
        taken = (Output * len(written))(*(Output(address_of(one), one.nbytes) for one in written))
        try:
            function(self._handle.address, choice, given, len(read), taken, len(written))
        finally:
            if self._guard is not None:
                self._guard.raise_finding()
        return delivered(signature.outputs, written, [one.rows for one in taken], out)

    def intercept(self, interception: Interception) -> None:
        """Let ``interception``, which must live as long as this, call kernels from now on."""
        self._core.neocpu_intercept(self._handle.address, byref(interception))

    def zeros(self, number: int = 0) -> list[AnyArray]:
        signature = self.signatures.all[number]
        arrays = [aligned_empty(spec.shape, spec.dtype) for spec in signature.inputs]
        for array in arrays:
            array.fill(0)
        return arrays

    def verify(self) -> None:
        self._core.neocpu_verify(self._handle.address)

    def start_trace(self) -> None:
        with self._tracing:
            self._core.neocpu_trace_start(self._handle.address)

    def stop_trace(self) -> tuple[TraceEvent, ...]:
        """Stop recording; return the events in the order in which they began."""
        from neocpu.runtime.timeline import TraceEvent

        events, count = POINTER(Event)(), c_size_t()
        with self._tracing:  # another start would free them
            self._core.neocpu_trace_stop(self._handle.address, byref(events), byref(count))
            return tuple(
                TraceEvent(
                    begin=one.begin,
                    end=one.end,
                    run=one.run,
                    call=one.call,
                    loop=one.loop,
                    task=one.task,
                    thread=one.thread,
                )
                for one in events[: count.value]
            )


def _signatures(handle: Handle, description: Description) -> SignatureSet:
    """Return the signatures of a model. They do not keep it."""
    fixed = [
        Signature(
            _specs(one.inputs, description.input_count),
            _specs(one.outputs, description.output_count),
            number,
        )
        for number, one in enumerate(description.signatures[: description.signature_count])
    ]
    if not description.size_count:
        return SignatureSet(fixed)
    from neocpu.runtime.sized_sessions import sized_signatures

    sizes = description.sizes[: description.size_count]
    return SignatureSet([], sized_signatures(handle, fixed[0], sizes))


def _readable(
    specs: Sequence[TensorSpec], inputs: Sequence[AnyArray], out: Sequence[AnyArray] | None
) -> list[AnyArray]:
    arrays, copied = [], []
    for spec, array in zip(specs, inputs, strict=True):
        if reason := _reason_to_copy(array, out):
            copied.append(f"'{spec.name}' ({reason})")
        if not (array.flags.c_contiguous and array.dtype.isnative):
            packed = aligned_empty(spec.shape, array.dtype.newbyteorder("="))
            packed[...] = array
            array = packed
        arrays.append(array)
    if copied:
        import logging  # here, because it would take a tenth of the time of `load`

        logger = logging.getLogger("neocpu")
        logger.debug("inputs copied before the run: %s", ", ".join(copied))
    return arrays


def writable(specs: Sequence[TensorSpec], out: Sequence[AnyArray] | None) -> list[AnyArray]:
    """Return arrays for a run to write: in C order and native byte order, without overlaps."""
    arrays = []
    for position, spec in enumerate(specs):
        if out is not None and _is_writable_in_place(out, position):
            arrays.append(out[position])
        else:
            kind = spec.dtype if out is None else out[position].dtype.newbyteorder("=")
            arrays.append(aligned_empty(spec.shape, kind))
    return arrays


def delivered(
    specs: Sequence[TensorSpec],
    written: Sequence[AnyArray],
    rows: Sequence[int],
    out: Sequence[AnyArray] | None,
) -> tuple[AnyArray, ...]:
    """Return the outputs of a run from `writable`'s arrays, in ``out`` if that is given.

    `rows`: the number of rows that count, for bounded outputs.
    """
    results = []
    for position, (spec, array) in enumerate(zip(specs, written, strict=True)):
        counted = slice(rows[position]) if spec.bounded else ...
        result = array if out is None else out[position]
        if result is not array:
            result[counted] = array[counted]
        if spec.bounded:
            result = result[counted].copy() if out is None else result[counted]
        results.append(result)
    return tuple(results)


def _bytes_of(source: Any) -> AnyArray:
    try:
        return np.frombuffer(source, np.uint8)
    except TypeError:
        raise ArgumentTypeError(
            f"expected the path of a compiled model or its bytes, got {type(source).__name__}"
        ) from None
    except ValueError as error:
        raise UsageError(f"the bytes of a compiled model cannot be read: {error}") from None


def _specs(array: Any, count: int) -> tuple[TensorSpec, ...]:
    return tuple(map(_spec, array[:count]))


def _spec(one: Any) -> TensorSpec:
    data = {
        "name": one.name.decode(),
        "dtype": one.dtype.decode(),
        "shape": one.shape[: one.rank],
        "bounded": bool(one.bounded),
    }
    if one.picture:
        words = one.picture.contents
        data["picture"] = {
            "layout": words.layout.decode(),
            "colours": words.colours.decode(),
            "fit": words.fit.decode(),
        }
    return TensorSpec.from_json(data)


def _is_writable_in_place(out: Sequence[AnyArray], position: int) -> bool:
    """Whether a run can write an output in place: not if it overlaps another, as the later wins."""
    array = out[position]
    others = (*out[:position], *out[position + 1 :])
    is_plain = array.flags.c_contiguous and array.dtype.isnative
    return is_plain and not any(np.may_share_memory(array, other) for other in others)


def _reason_to_copy(array: AnyArray, out: Sequence[AnyArray] | None) -> str | None:
    if not array.flags.c_contiguous:
        return "not C-contiguous"
    if not array.dtype.isnative:
        return "of the other byte order"
    if address_of(array) % _ALIGN:
        return f"not aligned to {_ALIGN} bytes"
    # Kernels write an output in place, perhaps before they have read all of this input.
    if out is not None and any(np.may_share_memory(array, one) for one in out):
        return "overlaps an output"
    return None
