"""Fixtures of the runtime's tests."""

import shutil
import subprocess

import pytest


@pytest.fixture
def binutils():
    """Run one of GNU binutils: a reader of ELF that is not ours."""

    def run(tool: str, *arguments: object) -> str:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
        command = [tool, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run
