"""Hot loops of convolutions: ``python -m tests.hot_loops [CPU …]``.

It prints, for ResNet-50's and MobileNet-v2's shapes in 8 bits, the instructions for each dot
product, itself included, without the loads of its operands. Each shape has the scheme with the best
estimate. ``--matrix`` takes the scheme that multiplies several pixels at once, in 8 bits and
bfloat16, and prints all instructions for each product. Where dot products have vectors of the same
size, it also prints the instructions of a multiply-add of ResNet-50 relative to dot products.
"""

from __future__ import annotations

import argparse

from tests.hot_loops.dot_loops import (
    MATRIX_TARGETS,
    TARGETS,
    WORKLOADS,
    compiled,
    compiled_matrix,
    in_bfloat16,
    is_multiplied_in_blocks,
    share_of_dot_products,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.hot_loops", description=__doc__)
    parser.add_argument("cpus", nargs="*", metavar="CPU")
    parser.add_argument("--matrix", action="store_true")
    options = parser.parse_args()
    if options.matrix:
        for cpu in options.cpus or MATRIX_TARGETS:
            _print_matrix(cpu)
        return
    for cpu in options.cpus or TARGETS:
        for workload in WORKLOADS:
            scheme, loop = compiled(workload, cpu)
            shape = str(workload).partition(" +")[0]
            made_of = f"{loop.dots} dots {loop.loads} loads {len(loop.body)} instructions"
            spilt = f", {len(loop.spills)} SPILT" if loop.spills else ""
            print(f"{cpu}: {shape}: {loop.per_dot:.2f}: {made_of}{spilt}: {scheme}", flush=True)


def _print_matrix(cpu: str) -> None:
    for workload in (*WORKLOADS, *map(in_bfloat16, WORKLOADS)):
        if not is_multiplied_in_blocks(workload, cpu):
            continue
        scheme, loop = compiled_matrix(workload, cpu)
        shape = f"{str(workload).partition(' +')[0]} of {workload.numerics.data}"
        made_of = f"{loop.dots} products {len(loop.body)} instructions"
        spilt = f", {len(loop.spills)} of the stack" if loop.spills else ""
        print(f"{cpu}: {shape}: {loop.per_product:.2f}: {made_of}{spilt}: {scheme}", flush=True)
    if cpu in TARGETS:
        for data in ("uint8", "bfloat16"):
            print(f"{cpu}: {data}: {share_of_dot_products(cpu, data):.2f} of dot products'")


if __name__ == "__main__":
    main()
