"""Which pages of a loaded artifact are in memory, and how large: what the kernel counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neocpu.bench.startup.page_sharing import Mapping, parse_smaps, weights_in


def held_pages(artifact: str, arena_bytes: int) -> dict[str, Any]:
    """Return what this process, which has run an artifact, holds of its weights and of its arena.

    Returns
    -------
    dict
        ``"weights"`` and ``"arena"``: of each ``"mapped"``, ``"resident"`` and ``"huge"`` bytes,
        the last ones in huge pages. What cannot be told apart from other memory is missing.
    """
    try:
        mappings = parse_smaps(Path("/proc/self/smaps").read_text())
    except (OSError, ValueError, LookupError):
        return {}  # a kernel without them
    file, weights = weights_in(Path(artifact))
    # The arena asks for huge pages, as little else does, and nothing else has its size.
    arenas = [
        one
        for one in mappings
        if one.wants_huge and not any(one.file) and one.size >= arena_bytes > 0
    ]
    found = {
        "weights": [one for one in mappings if weights and one.holds(file, weights)],
        "arena": sorted(arenas, key=lambda one: one.size)[:1],
    }
    return {name: _sums(some) for name, some in found.items() if some}


def _sums(mappings: list[Mapping]) -> dict[str, int]:
    return {
        "mapped": sum(one.size for one in mappings),
        "resident": sum(one.memory.resident for one in mappings),
        "huge": sum(one.huge for one in mappings),
    }
