"""Hot loops of 8-bit convolutions: ``python -m tests.hot_loops [CPU …]``.

Of ResNet-50's and MobileNet-v2's shapes, each in the scheme with the best estimate: instructions
for each dot product, itself among them, beyond the loads of its operands.
"""

from __future__ import annotations

import argparse

from tests.hot_loops.dot_loops import TARGETS, WORKLOADS, compiled


def main() -> None:
    """Print a line for each convolution."""
    parser = argparse.ArgumentParser(prog="tests.hot_loops", description=__doc__)
    parser.add_argument("cpus", nargs="*", metavar="CPU", default=list(TARGETS))
    for cpu in parser.parse_args().cpus:
        for workload in WORKLOADS:
            scheme, loop = compiled(workload, cpu)
            shape = str(workload).partition(" +")[0]
            made_of = f"{loop.dots} dots {loop.loads} loads {len(loop.body)} instructions"
            spilt = f", {len(loop.spills)} SPILT" if loop.spills else ""
            print(f"{cpu}: {shape}: {loop.per_dot:.2f}: {made_of}{spilt}: {scheme}", flush=True)


if __name__ == "__main__":
    main()
