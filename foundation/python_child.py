"""The command line of a child that runs Python: the one place where children's are made.

Python puts the current folder before all others on the path of ``-m`` and ``-c``, so that a file
``numpy.py`` there would be run, and a folder ``torch`` found by whoever asks whether PyTorch is
installed. Safe-path mode leaves that folder out; ``PYTHONPATH`` counts as it does in the parent.
It needs Python 3.11, as all does that starts children: what runs on 3.10 starts none.
"""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module as a program, as ``python -m`` does."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def program_command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs the text of a program, as ``python -c`` does."""
    return [sys.executable, "-P", "-c", program, *map(str, arguments)]
