"""Does a change leave machine code as it is? ``python -m tests.object_code OLD NEW``.

``OLD`` and ``NEW`` are the ``neocpu`` commands of two trees, each installed in an environment of
its own. Every network is compiled by both for every CPU, at two threads and without records, and
their functions are compared, apart from addresses of what lies elsewhere.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from neocpu import models
from tests.object_code.functions import changes, functions

CPUS = ("znver3", "znver4", "skylake-avx512", "cortex-a72", "neoverse-n1")


def compiled(command: str, network: str, cpu: str, folder: Path) -> dict[str, str]:
    """Return the functions of ``network`` for ``cpu`` as ``command`` compiles it."""
    out = folder / "out.so"
    options = ["--target", cpu, "--threads", "2", "--only-db", "--no-verify", "-q", "-o", str(out)]
    subprocess.run([command, "compile", network, *options], check=True, stdout=sys.stderr)
    return functions(out)


def main() -> int:
    """Run the command line; 1 if any function differs."""
    parser = argparse.ArgumentParser(prog="tests.object_code", description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--networks", nargs="+", default=list(models.MODELS))
    parser.add_argument("--cpus", nargs="+", default=CPUS)
    options = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        for network in options.networks:
            for cpu in options.cpus:
                old, new = (
                    compiled(command, network, cpu, Path(folder))
                    for command in (options.old, options.new)
                )
                found = changes(old, new)
                differing += bool(found)
                print(f"{network} {cpu}: {len(new)} functions, {found or 'the same'}", flush=True)
    print(f"{differing} of {len(options.networks) * len(options.cpus)} differ")
    return bool(differing)


if __name__ == "__main__":
    raise SystemExit(main())
