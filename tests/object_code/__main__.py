"""Compare machine code before and after a change: ``python -m tests.object_code OLD NEW``.

``OLD`` and ``NEW`` are the ``neocpu`` commands of two trees, each installed in an environment of
its own. Every network is compiled by both for every CPU, at two threads and without records, and
their functions are compared, without addresses of other code and data.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from neocpu.frontend import models
from neocpu.runtime.artifact import ArtifactFile
from tests.object_code.functions import changes, functions

CPUS = ("znver3", "znver4", "skylake-avx512", "cortex-a72", "neoverse-n1")


def compiled(
    command: str, network: str, cpus: Sequence[str], folder: Path
) -> dict[str, dict[str, str]]:
    """Return the functions of ``network`` as ``command`` compiles it, for each of ``cpus``."""
    fat, part = folder / "fat.so", folder / "part.so"
    options = ["--fat", ",".join(cpus), "--threads", "2", "--only-db", "--no-verify", "-q"]
    arguments = [command, "compile", network, *options, "-o", str(fat)]
    subprocess.run(arguments, check=True, stdout=sys.stderr)
    found = {}
    with fat.open("rb") as file:
        for variant in ArtifactFile(fat).variants:
            file.seek(variant.offset)
            part.write_bytes(file.read(variant.size))
            found[variant.name] = functions(part)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.object_code", description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--networks", nargs="+", default=list(models.MODELS))
    parser.add_argument("--cpus", nargs="+", default=CPUS)
    options = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        for network in options.networks:
            old, new = (
                compiled(command, network, options.cpus, Path(folder))
                for command in (options.old, options.new)
            )
            for cpu, code in new.items():
                found = changes(old[cpu], code)
                differing += bool(found)
                print(f"{network} {cpu}: {len(code)} functions, {found or 'the same'}", flush=True)
    print(f"{differing} of {len(options.networks) * len(options.cpus)} differ")
    return bool(differing)


if __name__ == "__main__":
    raise SystemExit(main())
