"""Programs in Python that tests run in a process of their own."""

import os
import subprocess
import sys


def run_script(
    script: str, *arguments: object, timeout: float = 100, quiet: bool = True, **environment: str
) -> str:
    """Return what a program prints. It must succeed; if ``quiet``, it says nothing of errors."""
    # Python warns of forks beside threads, which some programs are about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    assert not (quiet and done.stderr), done.stderr
    return done.stdout
