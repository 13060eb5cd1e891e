"""Machines with many cores: their rates and caches, for predictions of parallel runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from neocpu.foundation.errors import MissingFileError, UsageError, did_you_mean
from neocpu.foundation.files import read_file
from neocpu.foundation.given_json import parse_json

MIB: Final = 1 << 20

MAX_BYTES: Final = 1 << 20
"""The most bytes of a file that describes a machine. A few hundred are usual."""

GROUP: Final = 8
"""The most threads that share a task counter in the pool (core/src/pool.c)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine with many cores. Cores that share a cache are used before those of the next cache.

    Rates of memory are bytes per second; with several sockets, they are of the memory of one, where
    weights were first touched.
    """

    cpu: str  # LLVM's name
    cores: int  # in all sockets, with one thread each
    # Float32 operations per second of a core, two for each multiply-add, with all cores busy.
    flops: float
    l2: int  # bytes of a core's
    l3: int  # bytes of each
    l3_cores: int  # cores that share an L3
    l3_core: float  # rate from L3 for a core
    l3_all: float  # for all cores that share an L3
    memory_core: float  # rate from memory for a core
    memory_l3: float  # for all cores that share an L3
    memory_all: float  # for all cores
    fork: float = 0.2e-6  # seconds to enter and leave a parallel loop
    fork_core: float = 0.1e-6  # the same, for each core that waits for another core's cache line
    peer_core: float = 20e9  # rate for data in the L2 of another core with the same L3

    def caches(self, cores: int) -> int:
        return math.ceil(cores / self.l3_cores)

    def cache_rate(self, cores: int) -> float:
        return min(cores * self.l3_core, self.caches(cores) * self.l3_all)

    def memory_rate(self, cores: int) -> float:
        shared = min(cores * self.memory_core, self.caches(cores) * self.memory_l3)
        return min(shared, self.memory_all)

    def fork_seconds(self, cores: int) -> float:
        """Return the seconds to enter and leave a parallel loop: 0 on one core.

        The first core writes data that the others read, one group at a time. The cores of a group
        share a task counter, and the groups share another counter.
        """
        groups = math.ceil(cores / GROUP)
        waiting = min(cores, GROUP) + 2 * (groups - 1)
        return self.fork + waiting * self.fork_core if cores > 1 else 0.0


# An EPYC 9554: 8 dies of 8 cores, 3.5 GHz on all cores, 12 channels of DDR5-4800 (460 GB/s; STREAM
# gets about 85 % of it). A die's link moves 32 bytes at 1.8 GHz. Zen 4 does one 512-bit
# multiply-add per cycle. The latency between cores is 20 ns in a die, and 80 ns between dies.
_ZEN4: Final = Machine(
    cpu="znver4",
    cores=64,
    flops=3.5e9 * 32,
    l2=MIB,
    l3=32 * MIB,
    l3_cores=8,
    l3_core=75e9,
    l3_all=600e9,
    memory_core=20e9,
    memory_l3=50e9,
    memory_all=390e9,
    fork_core=0.08e-6,
    peer_core=36e9,
)
MACHINES: Final[dict[str, Machine]] = {
    "znver4": _ZEN4,
    # An EPYC 9575F: as above, with 12 channels of DDR5-6000. Measured are its clock, the rates of
    # two cores from L3 (150 GB/s), of one or two cores from memory (42 GB/s), and of one core from
    # another's L2. The last one is scaled by the clock for the Zen 4.
    "znver5": replace(
        _ZEN4,
        cpu="znver5",
        flops=4.05e9 * 64,
        memory_core=42e9,
        memory_l3=42e9,
        memory_all=490e9,
        fork_core=0.1e-6,
        peer_core=42e9,
    ),
    # Two Xeon Platinum 8358 of 32 cores: 2.6 GHz in AVX-512 on all cores, two 512-bit multiply-adds
    # per cycle, and 8 channels of DDR4-3200 each (205 GB/s; STREAM gets about 80 % of it). The
    # latency between cores of a mesh is 45 to 60 ns, and twice that between sockets.
    "icelake-server": Machine(
        cpu="icelake-server",
        cores=64,
        flops=2.6e9 * 64,
        l2=5 * MIB // 4,
        l3=48 * MIB,
        l3_cores=32,
        l3_core=25e9,
        l3_all=500e9,
        memory_core=12e9,
        memory_l3=165e9,
        memory_all=165e9,
        fork_core=0.08e-6,
    ),
}
"""Machines by their CPU, with figures that makers and reviewers publish, rounded down."""


def find_machine(name: str) -> Machine:
    """Return a machine by its name, or from a JSON file that describes it."""
    if name in MACHINES:
        return MACHINES[name]
    path = Path(name)
    if path.suffix != ".json":
        raise UsageError(
            f"no machine '{name}'; known: {', '.join(MACHINES)}, or a FILE.json"
            f"{did_you_mean(name, MACHINES)}"
        )
    try:
        found = parse_json(read_file(path, MAX_BYTES))
    except OSError as error:
        kind = MissingFileError if isinstance(error, FileNotFoundError) else UsageError
        raise kind(f"cannot read the machine {name}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise UsageError(f"{name} describes no machine: it must be a JSON object")
    return _described(name, found)


def _described(name: str, found: Mapping[str, Any]) -> Machine:
    known = {field.name: field for field in fields(Machine)}
    needed = {name for name, field in known.items() if field.default is MISSING}
    if unknown := sorted(found.keys() - known):
        hint = did_you_mean(unknown[0], known)
        raise UsageError(f"{name}: a machine has no '{unknown[0]}'{hint}")
    if missing := [name for name in known if name in needed - found.keys()]:
        raise UsageError(f"{name}: the machine lacks {', '.join(missing)}")
    for key, value in found.items():
        whole = known[key].type == "int"
        kinds = str if key == "cpu" else int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            words = "a name" if key == "cpu" else "a whole number" if whole else "a number"
            raise UsageError(f"{name}: '{key}' must be {words}, not {json.dumps(value)}")
        if not isinstance(value, str) and not 0 < value < math.inf:
            raise UsageError(f"{name}: '{key}' must be above 0, not {json.dumps(value)}")
    return Machine(**found)
