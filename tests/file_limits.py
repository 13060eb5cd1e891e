"""Files that may not grow: how tests make a disk full, without harm to the checkout.

Python does not notice that its bytecode was written short: a module that is imported for the first
time under such a limit can never be imported again. So a process under a limit writes no bytecode.
Tests set limits on the size of files only by this module.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

_NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"


def limit_files(size: int) -> None:
    """Limit every file of this process and its children to ``size`` bytes from now on."""
    sys.dont_write_bytecode, os.environ[_NO_BYTECODE] = True, "1"
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let no file of this process, or of children it starts meanwhile, grow past ``size`` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    bytecode, inherited = sys.dont_write_bytecode, os.environ.get(_NO_BYTECODE)
    limit_files(size)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = bytecode
        if inherited is None:
            del os.environ[_NO_BYTECODE]
        else:
            os.environ[_NO_BYTECODE] = inherited


def run_with_files_up_to(
    size: int, command: Sequence[str | os.PathLike[str]], env: dict[str, str], **settings: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command by `subprocess.run`, and limit every file it writes to ``size`` bytes."""
    return subprocess.run(
        command,
        env={**env, _NO_BYTECODE: "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        **settings,
    )
