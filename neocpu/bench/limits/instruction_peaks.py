"""The measured peaks of instructions that add several products at once, in a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Final, TypeAlias

from neocpu.bench.limits.dot_peak import DotSequence
from neocpu.bench.limits.kernel_runner import KernelRunner
from neocpu.bench.limits.measuring_process import measure_in_process
from neocpu.bench.limits.tile_peak import TileSequence
from neocpu.foundation.errors import TargetError
from neocpu.foundation.json_codec import JsonObject
from neocpu.schedules.vocabulary.target_parsing import parse_target

TIMEOUT: Final = 300.0

InstructionSequence: TypeAlias = DotSequence | TileSequence


def measure_peaks(
    target: str, threads: int, sequences: Sequence[InstructionSequence]
) -> dict[InstructionSequence, float]:
    """Return each sequence's multiply-accumulates per second, measured in a process.

    Raises TargetError: the measuring process fails.
    """
    if not sequences:
        return {}
    asked = json.dumps([each.to_json() for each in sequences])
    rates = measure_in_process(
        __name__,
        (target, threads, asked),
        TargetError,
        "measure this machine's instructions",
        TIMEOUT,
    )
    return dict(zip(sequences, rates, strict=True))


def sequence_from_json(data: JsonObject) -> InstructionSequence:
    """Read what a sequence's ``to_json`` returned."""
    return (TileSequence if "parts" in data else DotSequence).from_json(data)


def main() -> None:
    target, threads, asked = sys.argv[1:]
    with KernelRunner(parse_target(target), int(threads)) as runner:
        print(json.dumps([sequence_from_json(e).peak(runner) for e in json.loads(asked)]))


if __name__ == "__main__":
    main()
