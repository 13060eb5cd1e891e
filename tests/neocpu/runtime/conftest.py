"""Fixtures of the runtime's tests."""

import subprocess

import needs
import pytest

from neocpu.runtime.module import load
from tests.neocpu.runtime import sized_artifact


@pytest.fixture
def binutils():
    """Run one of GNU binutils, as an independent reader of ELF."""

    def run(tool: str, *arguments: object) -> str:
        command = [needs.program(tool), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture
def linear_module(linear):
    with load(linear.path, threads=2) as module:
        yield module


@pytest.fixture
def two_way_module(two_way):
    with load(two_way.path, threads=2) as module:
        yield module


@pytest.fixture(scope="session")
def sized(tmp_path_factory):
    """An artifact whose calls choose a height and a width (`sized_artifact`)."""
    return sized_artifact.write(tmp_path_factory.mktemp("sized"))
