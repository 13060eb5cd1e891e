"""Tests of ARM code need an ARM system to run it in; without one they are skipped."""

import pytest
from sysroot import ARM, stage_neocpu


def pytest_collection_modifyitems(items):
    if not (ARM / ".ready").exists():
        for item in items:
            if "/tests/arm/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="no ARM system: `make test-arm` makes it"))


@pytest.fixture(scope="session", autouse=True)
def staged():
    """Let the ARM system see files that came to this checkout since it was made."""
    stage_neocpu()
