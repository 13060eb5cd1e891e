"""Kernels for any number of rows, made of the template's kernels for a few."""

from __future__ import annotations

from functools import partial

from kernel_harness import HOST, THREADS, pool

from neocpu.schedules.tir.any_size import KernelTree, generalise
from neocpu.schedules.tir.noted_formulas import noted_formulas, terms_of
from neocpu.schedules.tir.value_table import ValueTable
from neocpu.schedules.vocabulary.formula_text import from_text
from neocpu.schedules.vocabulary.traced_sizes import (
    ATTRIBUTE,
    KernelKeys,
    traced,
    tracing,
    with_formulas,
)
from neocpu.search.measuring.kernel_calls import Argument, compile_kernels

COUNTS = (197, 1, 577, 63, 33, 131, 391, 47, 251, 511, 95, 17, 305, 443)
"""The numbers of rows that kernels are made of: the typical, the least, the most, and others.

All are odd, and none is a multiple of a vector: kernels must not rely on that."""


class AnyRows:
    """A kernel for any number of rows.

    `workload_of` returns the workload of a number of rows, and ``lower`` its kernel.
    """

    def __init__(self, workload_of, lower, counts=COUNTS):
        known = [KernelKeys(by_name={"kernel": [workload_of(count)]}) for count in counts[:3]]
        kernels = []
        for count in counts:
            with tracing(*known):
                key = traced("kernel", workload_of(count))
            kernels.append(with_formulas(key, partial(lower, key)))
        found = generalise([KernelTree(each.without_attr(ATTRIBUTE)) for each in kernels], 4)
        self.func = found.func
        self._table = ValueTable([tuple(counts[number] for number in found.alike)])
        noted = [from_text(str(kernels[number].attrs[ATTRIBUTE])) for number in found.alike]
        sizes = {
            name: self._table.find([each[name] for each in noted])
            for name in noted[0]
            if isinstance(name, str)
        }
        formulas = noted_formulas(noted)
        self._terms = terms_of(self._table, found.extents, formulas, sizes)
        assert self._terms is not None, found.extents
        (self._kernel,) = compile_kernels({"main": self.func}, HOST, THREADS)

    def of(self, count):
        """Return a function that calls the kernel of a number of rows with tensors."""
        values = self._table.evaluate((count,))
        extents = [values[term.number] if term.is_entry else term.number for term in self._terms]

        def run(*tensors):
            arguments = [Argument(address=0, shape=tuple(extents), dtype="uint8")]
            arguments += [
                Argument(address=each.data_ptr(), shape=tuple(each.shape), dtype=str(each.dtype))
                for each in tensors
            ]
            pool().call(self._kernel, arguments)

        return run
