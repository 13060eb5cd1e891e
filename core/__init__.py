"""The runtime: a library in C11, and what is needed to build it."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent
"""Holds ``neocpu.h``, the interface, and ``src``."""
