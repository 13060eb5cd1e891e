"""Counted instructions and modelled loops as tables, and as a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from neocpu.bench.engines.contenders import OWN
from neocpu.bench.instructions.arm_kernels import MIN_SHARE
from neocpu.bench.instructions.convolution_counter import HOT
from neocpu.bench.instructions.instruction_report import (
    EngineCount,
    HotLoop,
    InstructionReport,
    KernelCounts,
)
from neocpu.bench.results.document import Run, page
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.results.table import Table

METHOD: Final = f"""\
No ARM board was at hand, so nothing here is a time. It is what can be had without one, whatever
machine it is counted on: what code for such a board executes.

**The CPU.** A Cortex-A72, the core of a Raspberry Pi 4, decodes three instructions a cycle, has 32
vector registers of four float32, and starts one multiply-add (FMLA) of a whole vector a cycle. That
is the *FMLA bound*: four multiply-accumulates a cycle, however little else there is to do.

**Convolutions.** Of each network and each kind (kernel, stride, grouped or not) that does at least
{MIN_SHARE:.0%} of its multiply-accumulates, the one with the most work: one image, float32, one
thread, with its bias and activation. neocpu runs the kernel that its layout search chooses for the
network, without any tuning record unless `--db` has one, between the layouts it chooses. ncnn runs
a layer whose channels are in vectors of four, Winograd and matrix products allowed and 16-bit
arithmetic not. ONNX Runtime runs a model of one node, NCHW in and out. The AArch64 wheels from PyPI
run in an emulated Python (QEMU's user mode), where they find a Cortex-A72 and a Raspberry Pi 4's
caches; every output is compared with numpy's.

**Instructions.** A plugin of QEMU counts how often each block of machine code is executed in the
second run, and keeps the code. Everything counts but what is done once, such as packing weights:
padding, transforms of the image, the write-back, the call itself. *Per MAC* is per
multiply-accumulate of direct convolution, so Winograd's algorithm, which needs fewer, shows as
fewer. Another run gives the same to a thousandth; of ONNX Runtime, on a busy machine, to some
hundredths.

**The bound.** The innermost loops that do {HOT:.0%} of the executed FMLAs, found in the same count,
are given to llvm-mca, LLVM's model of the CPU's pipelines (for a Cortex-A72 it has the
Cortex-A57's). It takes loads to hit the first-level cache and branches to be predicted. *Of the
FMLA bound* are the cycles that the FMLAs of these loops need at least, over those of the model.
Loops that also activate and store have more to do than those of an engine that does so in a pass of
its own, whose instructions are then more.

**What this does not say.** Nothing of cache misses and memory, so nothing of layers that wait for
their weights, such as a dense layer of one row. What surrounds the modelled loops, and FMLAs that
stand in none (*of FMLAs* below tells how many do), show in the instructions only."""

Cell = Callable[[EngineCount, KernelCounts], str]


def tables(
    reports: Sequence[InstructionReport], failures: Sequence[ModelFailure] = ()
) -> tuple[Table, ...]:
    """Return instructions per MAC, shares of the FMLA bound, and what they are made of."""
    kernels = [kernel for report in reports for kernel in report.kernels]
    engines = sorted(
        {engine for kernel in kernels for engine in kernel.engines},
        key=lambda engine: (engine != OWN, engine),
    )
    lost = [f"{failure.name} failed: {failure.reason}" for failure in failures]
    lost += [
        f"{kernel.kernel.workload}: {failure.name} failed: {failure.reason}"
        for kernel in kernels
        for failure in kernel.failures
    ]
    return (
        _by_engine(
            "Instructions per MAC", kernels, engines, _per_mac, (*_versions(kernels), *lost)
        ),
        _by_engine("Hot loops, of the FMLA bound", kernels, engines, _of_bound, _bar(kernels)),
        _details(kernels),
    )


def render(
    title: str,
    reports: Sequence[InstructionReport],
    failures: Sequence[ModelFailure],
    run: Run,
) -> str:
    """Return the document."""
    found = [table.markdown().rstrip() for table in tables(reports, failures)]
    return page(title, run, METHOD, ["## Results", *found])


def _by_engine(
    title: str,
    kernels: Sequence[KernelCounts],
    engines: Sequence[str],
    cell: Cell,
    notes: tuple[str, ...],
) -> Table:
    rows = []
    for kernel in kernels:
        found = [kernel.find(engine) for engine in engines]
        cells = ["failed" if each is None else cell(each, kernel) for each in found]
        rows.append((str(kernel.kernel.workload), *cells))
    return Table(title, ("convolution", *engines), tuple(rows), notes)


def _per_mac(found: EngineCount, kernel: KernelCounts) -> str:
    return f"{found.instructions / kernel.kernel.macs:.3f}"


def _of_bound(found: EngineCount, kernel: KernelCounts) -> str:
    return f"{found.bound_share:.1%}"


def _bar(kernels: Sequence[KernelCounts]) -> tuple[str, ...]:
    shares = [own.bound_share for kernel in kernels if (own := kernel.find(OWN)) is not None]
    return (f"{OWN}'s worst: {min(shares):.1%}.",) if shares else ()


def _versions(kernels: Sequence[KernelCounts]) -> tuple[str, ...]:
    found = {f"{each.engine} {each.version}" for kernel in kernels for each in kernel.counts}
    return (f"Versions that were counted: {', '.join(sorted(found))}.",) if found else ()


def _details(kernels: Sequence[KernelCounts]) -> Table:
    header = (
        *("convolution", "engine", "MMAC", "M instructions", "M FMLA", "instructions / FMLA"),
        *("hot loops", "of FMLAs", "hottest: instructions", "FMLAs", "cycles", "scheme"),
    )
    rows = tuple(
        (
            str(kernel.kernel.workload),
            found.engine,
            f"{kernel.kernel.macs / 1e6:.1f}",
            f"{found.instructions / 1e6:.2f}",
            f"{found.multiply_adds / 1e6:.2f}",
            f"{found.instructions / found.multiply_adds:.2f}" if found.multiply_adds else "",
            str(len(found.loops)),
            f"{found.covered:.0%}",
            *_hottest(found.loops),
            str(kernel.kernel.scheme) if found.engine == OWN else "",
        )
        for kernel in kernels
        for found in kernel.counts
    )
    notes = (
        "M: 1e6. FMLA: multiply-adds in whole vectors of four float32.",
        "Hot loops: how many are modelled, which share of the executed FMLAs is theirs, and of an "
        "iteration of the hottest one instructions, FMLAs and modelled cycles.",
    )
    return Table("Details", header, rows, notes)


def _hottest(loops: Sequence[HotLoop]) -> tuple[str, str, str]:
    if not loops:
        return ("", "", "")
    found = loops[0].throughput
    return (str(found.instructions), f"{found.multiply_adds:g}", f"{found.cycles:.1f}")
