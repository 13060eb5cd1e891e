"""Names and versions of models."""

import pytest

from neocpu.foundation.errors import UsageError
from neocpu.serving.repository import ModelEntry, entries


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".net", "a/b", "a\\b", "a\0b", "a b", "a%2fb", "é", "x" * 129]
)
def test_names_that_addresses_cannot_have(name):
    with pytest.raises(UsageError, match="no name for a model"):
        ModelEntry(name, "net.so")


@pytest.mark.parametrize("version", ["", "0", "-1", "01", "latest", "1.0", "²"])
def test_versions_are_numbers(version):
    with pytest.raises(UsageError, match="no version"):
        ModelEntry("net", "net.so", version)


def test_models_of_a_command_line(tmp_path):
    a, b = tmp_path / "a.v2.so", tmp_path / "b.so"
    assert [(e.name, e.version) for e in entries([a, b], [])] == [("a.v2", "1"), ("b", "1")]
    named = entries([a, b], ["net:1", "net:12"])
    assert [(e.name, e.version, e.path) for e in named] == [("net", "1", a), ("net", "12", b)]
    for names, words in [
        (["x"], "1 times for 2 files"),
        (["x", "x"], "two files are model 'x' version 1"),
        (["x", "X"], "differ only in case"),
        (["x", "y:"], "no version"),
    ]:
        with pytest.raises(UsageError, match=words):
            entries([a, b], names)
    with pytest.raises(UsageError, match="no model to serve"):
        entries([], [])
