"""Which modules of this checkout a set of modules needs, and which other packages."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Closure:
    """What modules need, themselves included.

    Attributes
    ----------
    modules : mapping of str to Path
        Of this checkout, by their installed names.
    others : mapping of str to str
        Other packages that are not of Python itself, and a module that imports each.
    """

    modules: Mapping[str, Path]
    others: Mapping[str, str]


def closure(roots: Iterable[str], folders: Mapping[str, Path]) -> Closure:
    """Follow every import statement, those inside functions too, but for type checkers' own.

    Parameters
    ----------
    roots : iterable of str
        Modules, by their installed names.
    folders : mapping of str to Path
        Packages and where their sources lie.

    Raises
    ------
    LookupError
        If a module is imported that is not there.
    """
    modules: dict[str, Path] = {}
    others: dict[str, str] = {}
    waiting = [(name, "the list of modules") for name in roots]
    while waiting:
        name, origin = waiting.pop()
        if name in modules:
            continue
        top = name.partition(".")[0]
        if not any(top == package.partition(".")[0] for package in folders):
            if top not in sys.stdlib_module_names:
                others.setdefault(top, origin)
            continue
        path = find_source(name, folders)
        if path is None:
            raise LookupError(f"{origin} imports {name}, which is not there")
        modules[name] = path
        if parent := name.rpartition(".")[0]:
            waiting.append((parent, name))
        waiting += ((needed, name) for needed in imports_of(path, folders))
    return Closure(modules, others)


def find_source(name: str, folders: Mapping[str, Path]) -> Path | None:
    """Return the file of a module or package, or None."""
    package = max((p for p in folders if f"{name}.".startswith(f"{p}.")), key=len, default=None)
    if package is None:
        return None
    path = folders[package].joinpath(*name[len(package) :].split(".")[1:])
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


def imports_of(path: Path, folders: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file's statements import, but for type checkers' own."""
    for node in _run_time_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if find_source(name, folders) is not None)


def _run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those under ``if TYPE_CHECKING``."""
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        children = node.orelse if node.test.id == "TYPE_CHECKING" else children
    for child in children:
        yield from _run_time_nodes(child)
