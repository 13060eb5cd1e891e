"""The rounds of a soak test: a few in CI, many with ``NEOCPU_SOAK=full`` (make soak)."""

import os
import tempfile

import pytest


class Soak:
    """Chooses counts, and prints the results."""

    def __init__(self, name: str) -> None:
        self.full = os.environ.get("NEOCPU_SOAK") == "full"
        self._name = name
        self._count = 0

    def count(self, few: int, many: int) -> int:
        self._count = many if self.full else few
        return self._count

    def __call__(self, looks) -> None:
        before, after = looks
        print(f"\n{self._name}: {self._count} times\n  before {before}\n  after  {after}")


@pytest.fixture
def soak(request):
    return Soak(request.node.name)


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    """Use a folder for temporary files that no other process uses."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
