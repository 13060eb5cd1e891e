"""A profile that ``neocpu bench profile OUT.so --json`` printed, here or on another machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from neocpu.bench.limits.roofline import Limits
from neocpu.foundation.errors import UsageError
from neocpu.foundation.given_json import given_json
from neocpu.foundation.machine.machine_info import OtherLoad
from neocpu.foundation.plain_text import plain
from neocpu.plan.kernels import RUNTIME
from neocpu.plan.profiling.operator_times import Operator, ProfileReport
from neocpu.runtime.described_calls import describe_calls
from neocpu.runtime.header import ArtifactHeader

MAX_BYTES: Final = 1 << 28

_LEFT_OUT: Final = ("sequence",)  # not read: only measuring needs them


@dataclass(frozen=True, slots=True)
class SavedProfile:
    """A profile of an artifact, and the place and time of its measurement."""

    profile: ProfileReport
    cpu: str  # the name of the CPU
    date: str  # ISO 8601, UTC


def read_profile(path: Path, artifact: str, header: ArtifactHeader) -> SavedProfile:
    """Read a file of profiles, and return the one that belongs to an artifact.

    artifact: the arguments with which ``neocpu bench profile`` measures it, for messages.
    Raises UsageError: the file cannot be read, is no profile, or is one of another artifact.
    """
    remedy = f"write one with: neocpu bench profile {artifact} --json > {path.name}"
    with given_json(path, "--measured", "profile", MAX_BYTES, remedy) as document:
        machine = document["machine"]
        found = [(str(one["target"]), _profile(one["profile"])) for one in document["results"]]
        where = (str(machine["cpu"]), str(machine["date"]))
    if not found:
        raise UsageError(f"--measured {path} has no profile; {remedy}")
    differences = [_difference(target, profile, header) for target, profile in found]
    for (_, profile), difference in zip(found, differences, strict=True):
        if not difference:
            return SavedProfile(profile, *where)
    raise UsageError(f"--measured {path} is of another artifact: {differences[0]}; {remedy}")


def _difference(target: str, profile: ProfileReport, header: ArtifactHeader) -> str:
    if target != header.target:
        return f"that is for {plain(target)}, and {header.name} here for {header.target}"
    known, measured = describe_calls(header), profile.operators[:-1]
    if len(known) != len(measured):
        return f"that makes {len(measured)} calls, and {header.name} here {len(known)}"
    for place, (call, operator) in enumerate(zip(known, measured, strict=True)):
        if call.kernel != operator.kernel:
            return f"its call {place} is of {plain(operator.kernel)}, and here of {call.kernel}"
        if (call.weights, call.others) != (operator.weights, operator.others):
            return f"its call {place}, of {call.kernel}, has tensors of other sizes"
    return ""


def _profile(data: Mapping[str, Any]) -> ProfileReport:
    operators = tuple(map(_operator, data["operators"]))
    if not operators or operators[-1].kernel != RUNTIME or not any(o.seconds for o in operators):
        raise ValueError("not the times of a run")
    limits, load = data["limits"], data["limits"]["load"]
    threads = int(_positive(data["threads"]))
    return ProfileReport(
        threads=threads,
        seconds=_positive(data["seconds"]),
        instrumented=_positive(data["instrumented"]),
        operators=operators,
        limits=Limits(
            threads=threads,
            flops=_positive(limits["flops"]),
            dram=_positive(limits["dram"]),
            cache=int(_number(limits["cache"])),
            cache_read=_number(limits["cache_read"]),
            load=None if load is None else _load(load),
        ),
        pages=_pages(data["pages"]),
    )


def _load(data: Mapping[str, Any]) -> OtherLoad:
    return OtherLoad(_number(data["cpus"]), _number(data["stolen"]))


def _operator(data: Mapping[str, Any]) -> Operator:
    read: Mapping[str, Any] = {"str": str, "int": lambda n: int(_number(n)), "float": _number}
    stored = (each for each in fields(Operator) if each.name not in _LEFT_OUT)
    return Operator(**{each.name: read[str(each.type)](data[each.name]) for each in stored})


def _pages(data: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    return {
        str(part): {str(kind): int(_number(count)) for kind, count in counts.items()}
        for part, counts in data.items()
    }


def _number(value: Any) -> float:
    """Return a number that is finite and not negative. Raises TypeError or ValueError."""
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"not a measurement: {value!r}")
    return number


def _positive(value: Any) -> float:
    if not (number := _number(value)):
        raise ValueError("nothing was measured")
    return number
