"""Any fault in a JSON file that a command reads gives one clear message."""

from pathlib import Path

import pytest

from neocpu.foundation import given_json as module
from neocpu.foundation.errors import UsageError
from neocpu.foundation.given_json import MAX_INTEGER, given_json, parse_json


def read(path: Path, limit: int = 1 << 20) -> float:
    with given_json(path, "--list", "list", limit, "make one") as document:
        return float(1 / document[0])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *(("", "JSONDecodeError"), ("[" * 100_000, "RecursionError"), ("[]", "IndexError")),
        *(("{}", "KeyError"), ("5", "TypeError"), ("[0]", "ZeroDivisionError")),
        *(("[1" + "0" * 400 + "]", "ValueError"), ("[9007199254740992]", "ValueError")),
        *(("[1e999]", "ValueError"), ("[NaN]", "ValueError"), ("[-Infinity]", "ValueError")),
    ],
)
def test_content_that_is_another(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "list.json"
    path.write_text("[4]")
    assert read(path) == 0.25
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read(path)
    assert str(raised.value) == f"--list {path} is no list of neocpu ({error}); make one"


def test_unreadable_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    with pytest.raises(UsageError, match=r"^cannot read --list .*list.json: No such file"):
        read(path)
    path.write_text("[4]")
    with pytest.raises(UsageError, match=r"it has more than 0 MB$"):
        read(path, limit=2)


def test_numbers_are_read_exactly() -> None:
    assert parse_json(b" [9007199254740991, -1e308, -9007199254740991, 0.5]\n") == [
        *(MAX_INTEGER, -1e308, -MAX_INTEGER, 0.5)
    ]
    for text, said in (
        (b"[-9007199254740992]", "-9007199254740992 is beyond all numbers here"),
        (b"1" * 3000, "11111111111111111111… (3000 characters) is beyond all numbers here"),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            parse_json(text)
        assert str(caught.value) == said


def test_values_are_counted_before_they_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DECODER", None)  # is not asked
    for text in (b"[" + b"0," * (1 << 22) + b"0]", b"[" * (1 << 23), b'{"a":' * (1 << 23)):
        with pytest.raises(ValueError, match=r"^more than 4194304 values$"):
            parse_json(text)
