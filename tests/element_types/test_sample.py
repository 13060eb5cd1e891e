"""A sample of the table of element types holds, and the table has all operators."""

import random
import re

import pytest

from tests.element_types.__main__ import DOCUMENT, MARKS
from tests.element_types.cells import TYPES, operators, run

CELLS = [(name, kind) for name, each in operators().items() for kind in each.allowed]
SAMPLE = random.Random(0).sample(CELLS, 60)
TEXT = DOCUMENT.read_text()
ROWS = {
    name.replace("\\", ""): cells.split(" | ")
    for name, cells in re.findall(r"^\| ([^|]+) \| (.+) \|$", TEXT, re.MULTILINE)
}


@pytest.mark.parametrize(("name", "kind"), SAMPLE)
def test_sampled_cells_agree_with_the_table(name, kind):
    assert MARKS[run(name, kind).ending] == ROWS[name][list(TYPES).index(kind)]


def test_every_operator_has_a_row():
    assert ROWS.keys() >= operators().keys()
    for name, each in operators().items():
        marked = {kind for kind, mark in zip(TYPES, ROWS[name], strict=True) if mark != "-"}
        assert marked == set(each.allowed), name
