"""The virtual machine of one module. Everything here runs on the first thread of its pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.errors import ArtifactError
from neocpu.runtime.aligned_memory import address_of, aligned_empty, huge_pages
from neocpu.runtime.artifact import Artifact
from neocpu.runtime.artifact_file.content import REMEDY
from neocpu.runtime.artifact_file.header import ARGUMENT_ALIGN, CONTRACT
from neocpu.runtime.ffi import FfiError, Function, Tensor
from neocpu.runtime.ffi_values import CPU, DLTensor
from neocpu.runtime.library import Library
from neocpu.tensor_spec import TensorSpec

_POOLED: Final = 2  # AllocatorType::kPooled
_SHOWN: Final = 300
"""Characters of a reason of TVM's, which may list a thousand arguments."""

GUARD_VARIABLE: Final = "NEOCPU_GUARD"
"""Environment variable: 1 has the kernels of all sessions run as `guarding/guard.py` says."""

AnyArray: TypeAlias = np.ndarray[Any, Any]


def is_guarded() -> bool:
    """Whether sessions run their kernels between inaccessible pages."""
    return os.environ.get(GUARD_VARIABLE, "0") not in ("", "0")


class Session:
    """A virtual machine with its weights and its memory bound, ready to run.

    The tensors between its kernels lie in one arena, made here and used by every run. All tensors
    are made once; from run to run only the addresses of the inputs change, which kernels read where
    they lie unless generated code cannot.

    Raises
    ------
    ArtifactError
        If the code is not that of a virtual machine, or takes or gives others than the header's
        tensors: nothing of it but that comparison has run then.
    """

    __slots__ = (
        "_arrays",
        "_instrument",
        "_library",
        "_main",
        "_outputs",
        "_set_instrument",
        "_specs",
        "_staging",
        "_tensors",
    )

    def __init__(self, artifact: Artifact, library: Library, *, hugepages: bool) -> None:
        header, ffi = artifact.header, library.ffi
        arena = huge_pages(header.arena_bytes)
        self._library = library
        self._specs = header.inputs
        self._outputs = tuple(zip(header.outputs, header.counts, strict=True))
        self._staging: dict[int, AnyArray] = {}
        self._arrays = [
            *artifact.weight_arrays(hugepages=hugepages),
            *(placement.view(arena) for placement in header.activations),
        ]
        self._tensors = [ffi.tensor(0, np.dtype(one.dtype), one.shape) for one in header.inputs]
        others = [ffi.tensor(address_of(one), one.dtype, one.shape) for one in self._arrays]
        try:
            vm = ffi.member(library.executable, "vm_load_executable")()
            ffi.member(vm, "vm_initialization")(CPU, 0, _POOLED)
            results = [ffi.tensor(0, np.dtype(one.dtype), one.shape) for one in header.results]
            layout = ffi.function("ffi.Shape")(*header.layout)
            ffi.member(vm, CONTRACT)(layout, *self._tensors, *others, *results)
            self._main = ffi.member(vm, "main").bind([*self._tensors, *others])
            self._set_instrument = ffi.member(vm, "set_instrument")
        except FfiError as error:
            reason = str(error)[:_SHOWN]
            raise ArtifactError(
                f"cannot run {artifact.path}: header and code disagree: {reason}; {REMEDY}"
            ) from error
        self._instrument: Function | None = None
        if is_guarded():
            self._guard(artifact, [*self._tensors, *others[: len(header.weights)]])

    def run(
        self, inputs: Sequence[AnyArray], out: Sequence[AnyArray] | None = None
    ) -> tuple[AnyArray, ...]:
        """Run ``main`` once.

        Parameters
        ----------
        inputs : sequence of array
            In graph order, with the model's shapes; any strides, alignment and byte order.
        out : sequence of array, optional
            In graph order, with the model's shapes and dtypes. They may overlap inputs.

        Returns
        -------
        tuple of array
            In graph order, of those rows that count: new arrays, or ``out`` and views of it.
        """
        copied = []
        for position, array in enumerate(inputs):
            address = address_of(array)
            if reason := _reason_to_copy(array, address, out):
                address = self._stage(position, array)
                copied.append(f"'{self._specs[position].name}' ({reason})")
            self._tensors[position].content.data = address
        if copied:
            import logging  # here, because `load` would spend a tenth of its time on it

            logger = logging.getLogger("neocpu")
            logger.debug("inputs copied before the run: %s", ", ".join(copied))
        return self._main(self._read, out)

    def instrument(self, callback: Callable[..., None]) -> None:
        """Have ``callback`` called before and after each call of the virtual machine from now on.

        Its arguments are the function (None), its name, whether it is about to be called, what it
        returned, and its arguments: numbers, strings, `DLTensor` or None.
        """
        self._set_instrument_to(self._library.ffi.callback(callback))

    def _guard(self, artifact: Artifact, constant: Sequence[Tensor]) -> None:
        """Have every kernel run between inaccessible pages."""
        from neocpu.runtime.guarding.guard import Guard
        from neocpu.runtime.guarding.guarded_workspaces import workspaces

        workspaces().attach(artifact.library_path())
        guard = Guard(self._library.ffi, constant, workspaces())
        self._set_instrument_to(self._library.ffi.raw_callback(guard))

    def _set_instrument_to(self, function: Function) -> None:
        self._set_instrument(function)
        self._instrument = function  # until the virtual machine has another one

    def _stage(self, position: int, array: AnyArray) -> int:
        """Copy an input to where kernels can read it; return the address."""
        if position not in self._staging:
            spec = self._specs[position]
            self._staging[position] = aligned_empty(spec.shape, spec.dtype)
        np.copyto(self._staging[position], array)
        return address_of(self._staging[position])

    def _read(
        self, tensors: Sequence[DLTensor], out: Sequence[AnyArray] | None
    ) -> tuple[AnyArray, ...]:
        """Copy the outputs out of tensors that belong to the virtual machine."""
        arrays = [tensor.array() for tensor in tensors]
        results = []
        for position, (spec, count) in enumerate(self._outputs):
            array = arrays[position]
            if count is not None:
                array = array[: _count_rows(spec, arrays[count])]
            if out is None:
                results.append(array.copy())
                continue
            given = out[position] if count is None else out[position][: len(array)]
            np.copyto(given, array)
            results.append(given)
        return tuple(results)


def _count_rows(spec: TensorSpec, count: AnyArray) -> int:
    """Return how many rows of an output count in this run."""
    rows, most = int(count[0]), spec.shape[0]
    if not 0 <= rows <= most:
        raise ArtifactError(f"output '{spec.name}': the model counted {rows} rows of {most}")
    return rows


def _reason_to_copy(array: AnyArray, address: int, out: Sequence[AnyArray] | None) -> str | None:
    """Return why kernels cannot read an input where it lies, or None if they can."""
    if not array.flags.c_contiguous:
        return "not C-contiguous"
    if not array.dtype.isnative:
        return "of the other byte order"
    if address % ARGUMENT_ALIGN:
        return f"not aligned to {ARGUMENT_ALIGN} bytes"
    # An output may be an input as it is, and is written after others.
    if out is not None and any(np.may_share_memory(array, one) for one in out):
        return "overlaps an output"
    return None
