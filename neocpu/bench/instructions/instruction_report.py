"""What was counted and modelled of networks' convolutions on an ARM CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neocpu.bench.instructions.arm_kernels import Kernel
from neocpu.bench.instructions.throughput_model import Throughput
from neocpu.bench.results.failure import ModelFailure


@dataclass(frozen=True, slots=True)
class HotLoop:
    """A loop that does a good part of a run's multiply-adds, and what the model says of it."""

    iterations: int
    throughput: Throughput


@dataclass(frozen=True, slots=True)
class EngineCount:
    """One run of one convolution in one engine.

    Attributes
    ----------
    instructions : int
        All that the run executed.
    multiply_adds : float
        Those of float32 among them, in whole vectors.
    loops : tuple of HotLoop
        The hottest first.
    covered : float
        Share of the multiply-adds that these loops do.
    """

    engine: str
    version: str
    instructions: int
    multiply_adds: float
    loops: tuple[HotLoop, ...]
    covered: float

    @property
    def bound_share(self) -> float:
        """Of the hot loops' modelled cycles, those that their multiply-adds alone take."""
        cycles = sum(loop.iterations * loop.throughput.cycles for loop in self.loops)
        useful = sum(loop.iterations * loop.throughput.multiply_adds for loop in self.loops)
        return useful / cycles if cycles else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "engine": self.engine,
            "version": self.version,
            "instructions": self.instructions,
            "vector_multiply_adds": self.multiply_adds,
            "bound_share": self.bound_share,
            "covered": self.covered,
            "loops": [
                {
                    "iterations": loop.iterations,
                    "instructions": loop.throughput.instructions,
                    "vector_multiply_adds": loop.throughput.multiply_adds,
                    "cycles": loop.throughput.cycles,
                }
                for loop in self.loops
            ],
        }


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """One convolution in every engine; those that failed with their reasons."""

    kernel: Kernel
    counts: tuple[EngineCount, ...]
    failures: tuple[ModelFailure, ...] = ()

    @property
    def engines(self) -> frozenset[str]:
        """All that were asked."""
        failed = {failure.name for failure in self.failures}
        return frozenset({found.engine for found in self.counts} | failed)

    def find(self, engine: str) -> EngineCount | None:
        """Return an engine's count; None if it failed."""
        return next((found for found in self.counts if found.engine == engine), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "workload": str(self.kernel.workload),
            "macs": self.kernel.macs,
            "scheme": self.kernel.scheme.to_json(),
            "engines": [found.to_json() for found in self.counts],
            "failures": [failure.to_json() for failure in self.failures],
        }


@dataclass(frozen=True, slots=True)
class InstructionReport:
    """One network's hot convolutions, those of the networks before it left out."""

    name: str
    kernels: tuple[KernelCounts, ...]

    def __str__(self) -> str:
        return f"{self.name}: {len(self.kernels)} convolutions counted"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"model": self.name, "kernels": [kernel.to_json() for kernel in self.kernels]}
