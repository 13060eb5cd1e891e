"""Imports go down: from the roof to the foundation, and in no circle between modules."""

import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from wheels.imports import find_source, imports_of
from wheels.runtime import FOLDERS

#: From the ground up; a room may import what stands before it.
STOREYS = ("neocpu.foundation", "neocpu.schedules", "neocpu.tuning_db", "neocpu.search", "neocpu")


def modules() -> Iterator[tuple[str, Path]]:
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            inner = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *inner)).removesuffix(".__init__"), path


def room(module: str) -> str:
    """Return the storey that a module is part of."""
    return max((s for s in STOREYS if f"{module}.".startswith(f"{s}.")), key=len)


IMPORTS = {
    name: {
        found
        for found in imports_of(path, FOLDERS)
        if found != name and find_source(found, FOLDERS) is not None
    }
    for name, path in modules()
}


#: Of the rooms of a storey too.
ROOMS = {
    "neocpu.schedules": ("vocabulary", "estimates", "tir", "operators", "convolutions"),
    "neocpu": (
        "runtime",
        "serving",
        "bundle",
        "planning",
        "passes",
        "frontend",
        "reference",
        "bench",
        "cli",
    ),
}


def test_every_room_is_a_storey():
    assert sorted(FOLDERS) == sorted(STOREYS)


@pytest.mark.parametrize("storey", STOREYS)
def test_imports_go_down(storey):
    allowed = STOREYS[: STOREYS.index(storey) + 1]
    upward = {
        f"{name} imports {found}"
        for name, needed in IMPORTS.items()
        if room(name) == storey
        for found in needed
        # The package itself holds the other rooms, and its names are the public ones.
        if room(found) not in allowed
    }
    assert not upward


@pytest.mark.parametrize(("storey", "rooms"), ROOMS.items(), ids=ROOMS)
def test_imports_go_down_from_room_to_room(storey, rooms):
    def number(module: str) -> int | None:
        inner = module.removeprefix(f"{storey}.").partition(".")[0]
        return rooms.index(inner) if room(module) == storey and inner in rooms else None

    upward = {
        f"{name} imports {found}"
        for name, needed in IMPORTS.items()
        for found in needed
        if (mine := number(name)) is not None
        and (theirs := number(found)) is not None
        and theirs > mine
    }
    assert not upward


def test_there_are_no_circles():
    packages = {name for name, path in modules() if path.name == "__init__.py"}
    graph = {name: needed - packages for name, needed in IMPORTS.items()}
    list(graphlib.TopologicalSorter(graph).static_order())
