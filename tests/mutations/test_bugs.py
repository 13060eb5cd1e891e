"""Every bug of the list can be planted; whether the tests catch it, `make mutations` finds out."""

from pathlib import Path

import pytest

from tests.mutations.bug import Bug
from tests.mutations.bugs import BUGS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_has_one_place_and_existing_tests(bug: Bug) -> None:
    assert (ROOT / bug.path).read_text().count(bug.right) == 1
    assert bug.wrong != bug.right
    assert all((ROOT / test).is_file() for test in bug.tests)


def test_names_are_their_own() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
