"""Modules of others that run when something of them is first asked for: most of the time never."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Stands for a module until an attribute of it is read.

    The standard library's ``LazyLoader`` runs a module already when a second one imports it.
    """

    def __getattr__(self, name: str) -> Any:
        own = self.__name__
        if sys.modules.get(own) is self:
            del sys.modules[own]
        return getattr(importlib.import_module(own), name)


def load_lazily(name: str) -> None:
    """Have ``import name`` find a module that runs when something of it is first read.

    Nothing happens if it has been imported or its package is not installed.
    """
    if name not in sys.modules and importlib.util.find_spec(name.partition(".")[0]) is not None:
        sys.modules[name] = _Lazy(name)
