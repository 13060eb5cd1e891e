"""Names of foreign files are printed on one line, without control sequences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocpu.foundation.plain_text import plain, shortened


@pytest.mark.parametrize("name", ["conv1/Relu:0", "größe µ", "入力", "a b", "", "C:\\x", "🙂"])
def test_ordinary_text_is_not_escaped(name):
    assert plain(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\nneocpu: error: b", r"a\nneocpu: error: b"),
        ("a\x9b31mb", r"a\x9b31mb"),
        ("a\u202eb\u2069", r"a\u202eb\u2069"),
        ("\x7f\r\t\x00", r"\x7f\r\t\x00"),
        ("\u2028\ufeff\udcff", r"\u2028\ufeff\udcff"),
    ],
)
def test_control_sequences_of_terminals_are_escaped(name, shown):
    assert plain(name) == shown


@given(st.text(st.characters()))
def test_any_text_becomes_printable_and_is_escaped_once(text):
    assert plain(text).isprintable()
    assert plain(plain(text)) == plain(text)
    assert len(shortened(text, 7)) <= 7
