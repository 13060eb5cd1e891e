"""Networks' convolutions on an ARM CPU without one: instructions counted, loops modelled.

``python -m tests.experiments.instructions MODEL … [--db FILE]`` counts what each network's hot
convolutions execute on a Cortex-A72 that QEMU emulates, and models their innermost loops with
llvm-mca. `make build/arm/.ready` makes the AArch64 system that runs them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from neocpu.bench.results.table import Table
from neocpu.foundation.linker import find_linker
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.schedules.vocabulary.target_parsing import parse_target
from tests.experiments.instructions.arm_kernels import Kernel, hot_kernels
from tests.experiments.instructions.arm_system import CPU, open_system
from tests.experiments.instructions.convolution_counter import Counter, KernelCount
from tests.experiments.instructions.instruction_count import require_tools


def table(counts: Sequence[tuple[Kernel, KernelCount]]) -> Table:
    rows = tuple(
        (
            str(kernel.workload),
            f"{found.instructions / kernel.macs:.3f}",
            f"{found.bound_share:.1%}",
            f"{found.instructions / 1e6:.2f}",
            f"{found.multiply_adds / 1e6:.2f}",
            f"{found.covered:.0%}",
            str(kernel.scheme),
        )
        for kernel, found in counts
    )
    header = ("convolution", "instructions per MAC", "hot loops, of the FMLA bound")
    header += ("M instructions", "M FMLA", "FMLAs in hot loops", "scheme")
    return Table(f"Convolutions on a {CPU}", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.experiments.instructions")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--db", type=Path, action="append", default=[])
    parser.add_argument("--sysroot", type=Path, default=Path("build/arm/sysroot"))
    chosen = parser.parse_args()
    require_tools()
    target = parse_target(f"llvm -mtriple=aarch64-linux-gnu -mcpu={CPU}")
    find_linker(target.machine)
    kernels = {
        kernel: None
        for model in chosen.models
        for kernel in hot_kernels(model, target, NO_SHAPES, chosen.db)
    }
    with TemporaryFolder("instructions") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        counter = Counter(open_system(chosen.sysroot, root), target, Path(folder))
        print(table([(kernel, counter.count(kernel)) for kernel in kernels]).markdown())


if __name__ == "__main__":
    main()
