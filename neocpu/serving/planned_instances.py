"""How many instances the artifacts of a server were planned for."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.foundation.host import usable_cpus
from neocpu.runtime.artifact import read_header
from neocpu.runtime.thread_pool import Threads
from neocpu.serving.repository import ModelEntry


def planned_instances(models: Sequence[ModelEntry], threads: Threads) -> int:
    """Return as many as use all CPUs, if every model was compiled for throughput; otherwise 1.

    Parameters
    ----------
    threads : int or "performance", optional
        Of each instance; by default those of a call that models were planned for, the most of them.

    Raises
    ------
    ArtifactError
        As `read_header`.
    """
    headers = [read_header(model.path) for model in models]
    if threads == "performance" or any(header.streams is None for header in headers):
        return 1
    each = threads or max(header.threads for header in headers)
    return max(1, usable_cpus() // each)
