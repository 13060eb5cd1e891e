"""CPU targets: parsed, by TVM, from any spelling, with the properties that schedules need.

LLVM says which CPUs exist and which features they have; the host or `cpus` supplies the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from neocpu.foundation.cpus import BANDWIDTHS, DEFAULT_BANDWIDTHS, FMA_BYTES, INTEGER_MULTIPLIES
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.machine.network_rates import NETWORK_RATES
from neocpu.schedules.vocabulary.dot_unit import DotUnit, VectorUnits
from neocpu.schedules.vocabulary.numerics import BFLOAT16_PRODUCTS, Numerics

# The architectures that code is generated for, and other spellings of their triples' first parts.
TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-linux-gnu"}
MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}

# LLVM's names of what schedules choose by and records name; code may need more (`llvm_features`).
ISA_FEATURES = frozenset(
    (
        "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "movbe", "gfni",
        "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16",
        "avx512fp16", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg",
        "avx512vpopcntdq", "avxvnni", "avxvnniint8", "avx10.2", "amx-tile", "neon", "lse",
        "rdm", "rcpc", "dotprod",
        "fullfp16", "fp16fml", "complxnum", "jsconv", "i8mm", "bf16", "sve", "sve2",
    )
)  # fmt: skip

VECTOR_BYTES = {"avx512": 64, "avx2": 32, "sse": 16, "neon": 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The speeds that estimates assume for a CPU.

    - `frequency`: the clock in cycles per second.
    - `own`, `beyond`, `memory`: bandwidths in bytes per second: of one core within its L2, of one
      core beyond it, and of all cores together from memory.
    - `fork`: the seconds to enter and leave a parallel loop, with the threads' first cache misses.
    - `caches`: the number of last-level caches that the threads have.
    """

    frequency: float
    own: float
    beyond: float
    memory: float
    fork: float = 4e-6
    caches: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget:
    """One CPU to generate code for.

    - `triple`, `mcpu`: LLVM's target triple, one of `TRIPLES`, and its name of the CPU.
    - `mattr`: sorted switches in addition to ``mcpu``, such as ``+avx2`` or ``-avx512f``.
    - `features`: the resulting instruction sets by LLVM names, limited to `ISA_FEATURES`.
    - `l1d`, `l2`, `l3`: cache sizes of one core in bytes; ``l3`` is its share and may be 0.
    - `streams`: the simultaneous calls of a model, which share memory and the last-level cache.
    - `demands`: all features, by LLVM names, that running the code needs: more than ``features``.
    - `rates`: the speeds that estimates assume; except `in_network`, only their ratios matter.
    - `isa`: the vector instruction set: ``avx512``, ``avx2``, ``sse`` or ``neon``.
    """

    triple: str
    mcpu: str
    mattr: tuple[str, ...]
    features: tuple[str, ...]
    l1d: int
    l2: int
    l3: int
    streams: int = 1
    demands: tuple[str, ...] = field(default=(), repr=False, compare=False)
    # These are fields because estimates read them ten times each.
    rates: Rates = field(init=False, repr=False)
    isa: str = field(init=False, repr=False, compare=False)
    _units: dict[Numerics, tuple[DotUnit, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "isa", _isa(self.machine, self.features))
        clock = 3.5e9 if self.machine == "x86_64" else 2.0e9
        own, beyond, memory = BANDWIDTHS.get(self.mcpu, DEFAULT_BANDWIDTHS)
        rates = Rates(frequency=clock, own=own, beyond=beyond, memory=memory / self.streams)
        object.__setattr__(self, "rates", rates)

    @property
    def machine(self) -> str:
        return MACHINES[self.triple.split("-", 1)[0]]

    @property
    def vector_bytes(self) -> int:
        return VECTOR_BYTES[self.isa]

    @property
    def vector_registers(self) -> int:
        return 32 if self.isa in ("avx512", "neon") else 16

    def lanes(self, dtype: str) -> int:
        """Return the number of elements of ``dtype`` in a vector register."""
        return self.vector_bytes // bytes_of(dtype)

    def dot_unit(self, numerics: Numerics) -> DotUnit:
        """Return the instruction that computes with ``numerics``; UnsupportedError without one."""
        unit = self.find_dot_unit(numerics)
        if unit is None:
            raise UnsupportedError(f"{self.mcpu} has no instruction for products of {numerics}")
        return unit

    def find_dot_unit(self, numerics: Numerics) -> DotUnit | None:
        """Return the instruction that computes with ``numerics``; None if the CPU has none."""
        return next((each for each in self.units(numerics) if each.instruction.rows == 1), None)

    def find_matrix_unit(self, numerics: Numerics) -> DotUnit | None:
        """Return the instruction that multiplies several pixels at once; None if there is none."""
        return next((each for each in self.units(numerics) if each.instruction.rows > 1), None)

    @property
    def bfloat16_tiles(self) -> DotUnit | None:
        """The unit that multiplies tiles of bfloat16; None if there is none."""
        unit = self.find_matrix_unit(BFLOAT16_PRODUCTS)
        return unit if unit is not None and unit.instruction.in_tiles else None

    def units(self, numerics: Numerics) -> tuple[DotUnit, ...]:
        """Return all instructions that compute with ``numerics``, the preferred first."""
        if numerics not in self._units:
            narrow = self.vector_bytes > FMA_BYTES.get(self.mcpu, self.vector_bytes)
            units = VectorUnits(
                mcpu=self.mcpu,
                isa=self.isa,
                features=frozenset(self.features),
                vector_bytes=self.vector_bytes,
                registers=self.vector_registers,
                per_cycle=1 if narrow else 2,
                integer_multiplies=INTEGER_MULTIPLIES.get(self.mcpu, 2.0),
            )
            self._units[numerics] = units.units(numerics)
        return self._units[numerics]

    @property
    def bandwidths(self) -> tuple[float, float, float]:
        """Bandwidths in bytes per second: a core in L2, a core beyond it, all cores from memory."""
        return (self.rates.own, self.rates.beyond, self.rates.memory)

    @property
    def frequency(self) -> float:
        return self.rates.frequency

    def in_network(self, weight_bytes: float, threads: int) -> CpuTarget:
        """Return the CPU with the speeds measured in whole networks with `weight_bytes`, a part
        of them in the last-level cache, or else the speeds that plans assume.
        """
        known = NETWORK_RATES.get(self.mcpu)
        if known is None:
            return self
        kept = kept_share(weight_bytes, self.l3 * threads * self.streams)
        mixed = 1 / (kept / known.cache + (1 - kept) / known.memory) / self.streams
        return self.at(
            Rates(
                frequency=known.frequency,
                own=known.own,
                beyond=known.beyond,
                memory=mixed,
                fork=known.fork,
            )
        )

    def at(self, rates: Rates) -> CpuTarget:
        found = replace(self)
        object.__setattr__(found, "rates", rates)
        return found

    def to_tvm(self) -> Any:
        """Return the ``tvm.target.Target`` (the dict form: TVM 0.27 rejects option strings)."""
        import tvm

        return tvm.target.Target(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the dict form that TVM and `parse_target` accept."""
        data: dict[str, Any] = {"kind": "llvm", "mtriple": self.triple, "mcpu": self.mcpu}
        if self.mattr:
            data["mattr"] = list(self.mattr)
        return data

    def __str__(self) -> str:
        text = f"llvm -mtriple={self.triple} -mcpu={self.mcpu}"
        return text + (f" -mattr={','.join(self.mattr)}" if self.mattr else "")


def kept_share(weight_bytes: float, cache: float) -> float:
    """Return the share of a network's weights that a cache keeps between runs: 1 if feature maps
    have room beside them, 0 if they are twice its size.
    """
    if weight_bytes <= cache / 2:
        return 1.0
    return max(0.0, 1 - (weight_bytes - cache / 2) / cache)


def _isa(machine: str, features: tuple[str, ...]) -> str:
    if machine == "aarch64":
        return "neon"
    if "avx512f" in features:
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= set(features) else "sse"
