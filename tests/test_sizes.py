"""Folders, files and functions stay small enough to understand."""

import statistics
from pathlib import Path

from house_size import functions, lines

from wheels.runtime import FOLDERS

ROOM, FUNCTION, FILE = 3500, 60, 130

FILES = [path for folder in FOLDERS.values() for path in folder.rglob("*.py")]


def test_no_folder_has_too_many_lines() -> None:
    rooms: dict[Path, int] = {}
    for path in FILES:
        rooms[path.parent] = rooms.get(path.parent, 0) + lines(path)
    assert not {str(room): size for room, size in rooms.items() if size > ROOM}


def test_functions_fit_a_screen() -> None:
    found = {name: size for path in FILES for size, name in functions(path)}
    assert not {name: size for name, size in found.items() if size > FUNCTION}


def test_most_files_are_short() -> None:
    assert statistics.median(map(lines, FILES)) <= FILE
