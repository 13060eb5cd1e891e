"""Rules check every attribute that matters to them: other attributes are drawn."""

import pytest

from tests import needs
from tests.neocpu.graph.rules.other_attributes import GRAPHS, outcome


@pytest.mark.parametrize("name", GRAPHS)
@needs.one_in(4)
def test_other_attributes_are_right_or_refused(name):
    for number in range(2):
        result = outcome(name, number)
        assert not result.failed, f"{number}: {result.kind}: {result.detail}"
