"""The registry of custom operators: registered in Python, named by a caller, or installed.

An installed package has entry points in the group ``neocpu.operators``. Each of them is a
`CustomOperator`, or several. They are loaded when a model has an operator of a foreign domain.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Final

from neocpu.foundation.errors import UsageError
from neocpu.foundation.foreign_code import foreign_code, one_line
from neocpu.ir.custom_operators.custom_operator import CustomOperator

GROUP: Final = "neocpu.operators"

_ATTRIBUTE: Final = "OPERATORS"
"""The name that holds a module's operators if only the module is named."""

_REGISTERED: Final[dict[tuple[str, str], CustomOperator]] = {}


class _CurrentFolder(MetaPathFinder):
    """Finds modules in the current folder, after all installed modules.

    Python takes any folder for a package. Here a folder without ``__init__.py`` is a package only
    if a caller named it: a virtual environment ``torch`` would otherwise pass for PyTorch.
    """

    def __init__(self) -> None:
        self._named: set[str] = set()

    def add(self, name: str) -> None:
        """Make a module that a caller named, and those that it imports, known to Python."""
        self._named.add(name)
        if self not in sys.meta_path:
            sys.meta_path.append(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the place of a module; None for parts of packages, which the packages know."""
        if path is not None:
            return None
        spec = PathFinder.find_spec(fullname, [""])
        if spec is not None and spec.origin is None and fullname not in self._named:
            return None
        return spec


_CURRENT_FOLDER: Final = _CurrentFolder()


def register_operator(operator: CustomOperator) -> None:
    """Add an operator that models may use; it replaces one with the same name.

    Raises
    ------
    UsageError
        It is no `CustomOperator`.
    """
    if not isinstance(operator, CustomOperator):
        raise UsageError(f"not a neocpu.CustomOperator: {operator!r}")
    _REGISTERED[operator.domain, operator.name] = operator


def register_named(names: Iterable[str]) -> None:
    """Import and register operators.

    Each of `names`, such as ``package.module:NAME``, is that of an operator or several. Without
    ``:NAME``, the module's ``OPERATORS`` is meant. Modules in the current folder are found, too.

    Raises UsageError if a name cannot be imported, or is that of something else.
    """
    for name in names:
        module, _, attribute = name.partition(":")
        _CURRENT_FOLDER.add(module.partition(".")[0])
        entry = EntryPoint(name, f"{module}:{attribute or _ATTRIBUTE}", GROUP)
        for operator in _loaded(entry, f"--operators {name}"):
            register_operator(operator)


def find_operator(domain: str, name: str) -> CustomOperator | None:
    """Return the custom operator of this name, or None.

    Raises UsageError: an installed package does not load, or two have operators of one name.
    """
    if domain in ("", "ai.onnx"):
        return None
    return _REGISTERED.get((domain, name)) or _installed().get((domain, name))


@cache
def _installed() -> dict[tuple[str, str], CustomOperator]:
    importlib.invalidate_caches()
    found: dict[tuple[str, str], CustomOperator] = {}
    for entry in entry_points(group=GROUP):
        package = entry.dist.name if entry.dist is not None else entry.module
        for operator in _loaded(entry, f"the entry point '{entry.name}' of package {package}"):
            key = operator.domain, operator.name
            if (other := found.setdefault(key, operator)) is not operator:
                raise UsageError(
                    f"packages {other.package} and {operator.package} both add the operator "
                    f"{'::'.join(key)}: uninstall one of them, or choose by --operators"
                )
    return found


def _loaded(entry: EntryPoint, where: str) -> list[CustomOperator]:

    def failure(error: BaseException) -> UsageError:
        return UsageError(f"{where} cannot be loaded from {entry.value}: {one_line(error)}")

    with foreign_code(failure):  # importing runs any code, and so may iterating over the operators
        value: Any = entry.load()
        operators = list(value) if isinstance(value, list | tuple) else [value]
        for operator in operators:
            if not isinstance(operator, CustomOperator):
                raise UsageError(
                    f"{where}: {entry.value} is not a neocpu.CustomOperator: {operator!r}"
                )
    return operators
