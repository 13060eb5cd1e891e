"""``python -m neocpu``: the same as the ``neocpu`` command."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line, or say what to install where its libraries are missing."""
    try:
        from neocpu.cli import main
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        words = "the command line needs click and rich: pip install 'neocpu-runtime[cli]'"
        print(f"neocpu: error: {words}", file=sys.stderr)
        sys.exit(2)
    main.run()


if __name__ == "__main__":
    # Python 3.10 has no -P.
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        # The current folder, where a numpy.py would be run; it stays if neocpu is in it.
        if sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
            del sys.path[0]
    run()
