"""Benchmark reports with numbers that are known."""

from neocpu.bench.engines.measured_model import Compilation
from neocpu.bench.limits.roofline import Limits, Roofline
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult, ScalingReport
from neocpu.bench.race.report import ModelReport, Planned, SuiteReport
from neocpu.bench.results.failure import ModelFailure
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.machine.machine_info import MachineInfo

PEERS = ("onnxruntime", "openvino")

MACHINE = MachineInfo(
    cpu="Test CPU",
    cpus=2,
    caches={"L1d": 32 << 10, "L2": 1 << 20},
    memory=(3 << 30) // 2,
    system="Linux",
    python="3.11.0",
    versions={"neocpu": "0.1.0", "onnxruntime": "1.31"},
    date="2026-01-02T03:04:05+00:00",
)


def result(label, milliseconds, error=1e-7):
    """Return the result of a contender whose calls all take equally long."""
    return LatencyResult(
        label=label,
        version="1.0",
        rounds=((milliseconds / 1e3,) * 3,) * 4,
        load_seconds=0.5,
        error=error,
        peak_rss=50_000_000,
    )


def latency(own, *peers, threads=2):
    """Report of neocpu and `PEERS`, in milliseconds; None for one that failed."""
    results = (result("neocpu", own), *map(result, PEERS, peers))
    return LatencyReport(threads=threads, results=results, failures=(), reference="onnxruntime")


def model(name, own, *peers, predicted=None, **others):
    """Report of a model; times in milliseconds."""
    return ModelReport(
        name=name,
        target="llvm -mcpu=znver4",
        latency=latency(own, *peers),
        planned=Planned((predicted or own) / 1e3, 0.0, 0.25),
        compilation=Compilation(7.25, 800_000_000, 100_000_000, 104_000_000),
        **others,
    )


def suite():
    """Three models, one won, one lost and one undecided, and one that failed."""
    return SuiteReport(
        (
            model("won", 10, 20, 25, predicted=9),
            model("lost", 10, 8, 5, predicted=12),
            model("even", 10, 10, 30, predicted=9.5),
        ),
        (ModelFailure("broken", UnsupportedError("no kernel for Frobnicate")),),
    )


def scaling():
    """Times of 1 and 2 threads; neocpu scales perfectly, its peers not at all."""
    return ScalingReport({1: latency(20, 20, 20, threads=1), 2: latency(10, 20, 20)})


def roofline(name):
    """Half of the FMA peak and a quarter of the bandwidth."""
    return Roofline(
        name, 0.010, 1_000_000_000, 50_000_000, Limits(threads=2, flops=200e9, dram=20e9)
    )
