"""``python -m neocpu``: the same as the ``neocpu`` command."""

from __future__ import annotations

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
    run()
