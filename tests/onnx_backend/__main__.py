"""`python -m tests.onnx_backend`: run all of ONNX's suite and write docs/onnx-backend.md.

With words, only tests whose names have one of them are run, and nothing is written.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from threading import Thread

from neocpu.building.forked import ForkedJobs, Limits
from tests.onnx_backend.suite import Result, run, suite
from tests.onnx_backend.table import DOCUMENT, document

_LIMITS = Limits(cpu_seconds=120, seconds=240)


def run_all(names: list[str], progress: bool = False) -> dict[str, Result]:
    """Run tests in a child; a crash or a hang is a result, and another child continues."""
    suite()  # once, for all children
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.json") for number in range(len(names))]

        def work(number: int) -> None:
            result = run(names[number])
            files[number].write_text(json.dumps([result.ending, result.reason]))

        jobs = ForkedJobs(work, len(names), 1, _LIMITS, Path(folder))
        try:
            jobs.start()
            if progress:
                Thread(target=_progress, args=(files,), daemon=True).start()
            outcomes = jobs.outcomes()
        finally:
            jobs.close()
        return {
            name: Result(*json.loads(file.read_text())) if file.exists() else Result("crashed", why)
            for name, file, why in zip(names, files, outcomes, strict=True)
        }


def _progress(files: list[Path]) -> None:
    begun, done = time.monotonic(), 0
    while done < len(files):
        time.sleep(2)
        done = sum(file.exists() for file in files)
        print(f"\r{done} of {len(files)}, {time.monotonic() - begun:.0f} s", end="", flush=True)


def main(words: list[str]) -> None:
    names = [name for name in suite() if not words or any(word in name for word in words)]
    results = run_all(names, progress=True)
    print("\r", end="")
    for name, result in results.items():
        if words or result.ending in ("wrong", "crashed"):
            print(f"{name}: {result.ending} {result.reason}")
    print(dict(Counter(result.ending for result in results.values())))
    if not words:
        DOCUMENT.write_text(document(results))
        print(f"wrote {DOCUMENT}")


if __name__ == "__main__":
    main(sys.argv[1:])
