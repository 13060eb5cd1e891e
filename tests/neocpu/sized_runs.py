"""Runs a program for any size, call by call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neocpu.building.sized.program import SizedProgram, SizedTensor
from neocpu.foundation.bfloat16 import array_dtype
from neocpu.foundation.size_formulas import Term
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.buffers import aligned_copy
from neocpu.search.measuring.kernel_calls import Argument, Kernel, KernelPool, compile_kernels


class SizedRunner:
    """The kernels of a program, compiled once."""

    def __init__(
        self, program: SizedProgram, weights: Sequence[Any], target: CpuTarget, threads: int
    ) -> None:
        self._program = program
        self._weights = [aligned_copy(each) for each in (*weights, *program.constants)]
        functions = {name: each.func for name, each in program.kernels.items()}
        compiled = compile_kernels(functions, target, threads)
        self._kernels: Mapping[str, Kernel] = dict(zip(functions, compiled, strict=True))
        self._pool = KernelPool(threads)

    def run(self, sizes: Sequence[int], *inputs: Any) -> list[Any]:
        """Return the results for inputs whose varying extents are ``sizes``."""
        program, values = self._program, self._program.values(sizes)

        def value(term: Term) -> int:
            return values[term.number] if term.is_entry else term.number

        def shape(tensor: SizedTensor) -> tuple[int, ...]:
            return tuple(map(value, tensor.shape))

        assert [shape(each) for each in program.inputs] == [each.shape for each in inputs]
        ends: dict[int, int] = defaultdict(int)
        for each in program.activations:
            size = int(np.prod(shape(each))) * array_dtype(each.dtype).itemsize
            ends[each.block] = max(ends[each.block], value(each.offset) + size)
        blocks = {
            number: aligned_copy(np.zeros(size + 64, np.uint8)) for number, size in ends.items()
        }
        tensors = [aligned_copy(each) for each in inputs] + self._weights
        for each in program.activations:
            data = blocks[each.block][value(each.offset) :]
            count = int(np.prod(shape(each)))
            kind = array_dtype(each.dtype)
            tensors.append(data[: count * kind.itemsize].view(kind).reshape(shape(each)))
        for name, operands in program.calls:
            extents = program.kernels[name].extents
            arguments = [
                Argument(address=t.ctypes.data, shape=t.shape, dtype=str(t.dtype))
                for t in (tensors[number] for number in operands)
            ]
            if extents:
                first = Argument(address=0, shape=tuple(map(value, extents)), dtype="uint8")
                arguments.insert(0, first)
            self._pool.call(self._kernels[name], arguments)
        return [np.array(tensors[number]) for number in program.results]
