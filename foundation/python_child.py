"""The command line of a child process that runs Python, made here for all children.

With ``-m`` and ``-c``, Python searches the current folder first: a file ``numpy.py`` there would be
run. Safe-path mode leaves that folder out, and ``PYTHONPATH`` counts as in the parent. This mode
needs Python 3.11, as does all code that starts children.
"""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module as a program, as ``python -m`` does."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def program_command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs the text of a program, as ``python -c`` does."""
    return [sys.executable, "-P", "-c", program, *map(str, arguments)]
