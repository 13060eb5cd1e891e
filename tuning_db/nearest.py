"""Related CPUs: the records of one stand in where the other has none.

What makes one scheme faster than another is foremost how many accumulators fit the vector registers
and how wide these are; caches and clocks come after. So a relative is a CPU with the same
registers, and records of any other say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from neocpu.foundation.cpus import CACHES, DEFAULT_CACHES
from neocpu.schedules.vocabulary.target import TRIPLES, CpuTarget
from neocpu.tuning_db.record import TargetKey


def cpu_target(key: TargetKey) -> CpuTarget:
    """Return the CPU of ``key`` as far as its name and features tell, without asking LLVM."""
    switched_off = tuple(name for name in key.features if name.startswith("-"))
    features = tuple(name for name in key.features if name not in switched_off)
    l1d, l2, l3 = CACHES.get(key.mcpu, DEFAULT_CACHES)
    return CpuTarget(
        triple=TRIPLES["aarch64" if "neon" in features else "x86_64"],
        mcpu=key.mcpu,
        mattr=switched_off,
        features=features,
        l1d=l1d,
        l2=l2,
        l3=l3,
    )


def relatives(wanted: TargetKey, present: Iterable[TargetKey]) -> tuple[TargetKey, ...]:
    """Return those of ``present`` that are related to ``wanted``, the closest first.

    Related are targets of the same instruction set, vector width and number of vector registers.
    The same CPU with another thread count is closest; then come CPUs by how many instruction-set
    features they share, by how few they have besides, and by how near their thread count is.
    ``wanted`` itself is none.
    """
    registers = _registers(wanted)
    found = [key for key in present if key != wanted and _registers(key) == registers]
    return tuple(sorted(found, key=lambda key: _distance(wanted, key)))


def _registers(key: TargetKey) -> tuple[str, int, int]:
    cpu = cpu_target(key)
    return cpu.machine, cpu.vector_bytes, cpu.vector_registers


def _distance(wanted: TargetKey, key: TargetKey) -> tuple[bool, int, int, float, TargetKey]:
    shared = len({*wanted.compared} & {*key.compared})
    return (
        key.mcpu != wanted.mcpu,
        -shared,
        len(key.compared) - shared,
        abs(math.log(key.threads / wanted.threads)),
        key,  # one order, whatever the order of the files
    )
