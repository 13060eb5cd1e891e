"""Folders, files and functions stay small enough to understand."""

import ast
import statistics
from pathlib import Path

from wheels.runtime import FOLDERS

ROOM, FUNCTION, FILE = 3500, 60, 130

FILES = [path for folder in FOLDERS.values() for path in folder.rglob("*.py")]


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    whole = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return whole
    return whole - (function.body[0].end_lineno - function.body[0].lineno + 1)


def test_no_folder_has_too_many_lines() -> None:
    rooms: dict[Path, int] = {}
    for path in FILES:
        rooms[path.parent] = rooms.get(path.parent, 0) + lines(path)
    assert not {str(room): size for room, size in rooms.items() if size > ROOM}


def test_functions_fit_a_screen() -> None:
    found = {
        f"{path}: {node.name}": code(node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {name: size for name, size in found.items() if size > FUNCTION}


def test_most_files_are_short() -> None:
    assert statistics.median(map(lines, FILES)) <= FILE
