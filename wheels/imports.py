"""The modules of this checkout, and other packages, that a set of modules imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Closure:
    """A set of modules with everything that they import."""

    modules: Mapping[str, Path]  # of this checkout, by their installed names
    others: Mapping[str, str]  # packages beyond the standard library, each with one that imports it


def closure(roots: Iterable[str], folders: Mapping[str, Path]) -> Closure:
    """Follow every import statement, also inside functions, except those for type checkers.

    `roots`: the modules to start from, by their installed names. `folders`: the packages and the
    folders of their sources. Raises LookupError: an imported module does not exist.
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
    """Yield the modules that a file imports, except those for type checkers."""
    for node in _run_time_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if find_source(name, folders) is not None)


def _run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those under ``if TYPE_CHECKING``."""
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        children = node.orelse if node.test.id == "TYPE_CHECKING" else children
    for child in children:
        yield from _run_time_nodes(child)
