"""Fixtures of the runtime's tests."""

import subprocess

import needs
import pytest

from neocpu.runtime.module import load


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
