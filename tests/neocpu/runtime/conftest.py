"""Fixtures of the runtime's tests."""

import subprocess

import needs
import pytest


@pytest.fixture
def binutils():
    """Run one of GNU binutils: a reader of ELF that is not ours."""

    def run(tool: str, *arguments: object) -> str:
        command = [needs.program(tool), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run
