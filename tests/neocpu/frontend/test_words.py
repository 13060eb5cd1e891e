"""Attributes have words that ONNX defines, or the model is refused."""

import pytest

from neocpu.frontend.words import WORDS, WORDS_OF_ALL, refuse_unknown_words

KNOWN = {**WORDS, **{("Any", attribute): words for attribute, words in WORDS_OF_ALL.items()}}
each = pytest.mark.parametrize("place", KNOWN, ids=".".join)


@each
def test_words_that_onnx_knows(place):
    op_type, attribute = place
    for word in KNOWN[place]:
        refuse_unknown_words(op_type, {attribute: word.encode()})


@each
@pytest.mark.parametrize("word", [b"foo", b"None", b"\x1b[31m\n", b"\xff"])
def test_words_that_it_does_not_know(place, word):
    op_type, attribute = place
    with pytest.raises(ValueError, match=f"its {attribute} '.*' is none of {KNOWN[place][0]}, "):
        refuse_unknown_words(op_type, {"axis": 1, attribute: word})


@each
def test_an_empty_word_is_a_default_where_onnx_runtime_takes_it_for_one(place):
    op_type, attribute = place
    if attribute in ("auto_pad", "reduction"):
        refuse_unknown_words(op_type, {attribute: b""})
        return
    with pytest.raises(ValueError, match=f"its {attribute} '' is none of"):
        refuse_unknown_words(op_type, {attribute: b""})


def test_the_kinds_of_roi_align_are_known_in_capitals_too():
    refuse_unknown_words("RoiAlign", {"mode": b"AVG"})
