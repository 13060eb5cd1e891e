"""Measure the most memory that compiling the built-in networks takes, and print a table.

``python -m tests.compile_memory [NETWORK ...]``: all of them by default. See
`tests.compile_memory.compile_peak` for the measure and the bound.
"""

from __future__ import annotations

import sys

from neocpu.frontend.models import MODELS
from tests.compile_memory.compile_peak import Peak, measure

_MB = 1e6


def _row(found: Peak) -> str:
    over = "" if found.peak <= found.bound else "  above the bound"
    sizes = (found.weights, found.peak, found.bound)
    return f"{found.network:20}" + "".join(f"{size / _MB:9.0f}" for size in sizes) + over


def main() -> int:
    """Print a line for each network; return 1 if one takes more than its bound."""
    print(f"{'MB':20}{'weights':>9}{'peak':>9}{'bound':>9}", flush=True)
    code = 0
    for network in sys.argv[1:] or MODELS:
        found = measure(network)
        print(_row(found), flush=True)
        code = max(code, int(found.peak > found.bound))
    return code


if __name__ == "__main__":
    sys.exit(main())
