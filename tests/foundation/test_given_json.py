"""Whatever is in a file of JSON that a command is given, the message says one thing of it."""

from pathlib import Path

import pytest

from neocpu.foundation.errors import UsageError
from neocpu.foundation.given_json import given_json


def read(path: Path, limit: int = 1 << 20) -> float:
    with given_json(path, "--list", "list", limit, "make one") as document:
        return float(1 / document[0])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *(("", "JSONDecodeError"), ("[" * 100_000, "RecursionError"), ("[]", "IndexError")),
        *(("{}", "KeyError"), ("5", "TypeError"), ("[0]", "ZeroDivisionError")),
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


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    with pytest.raises(UsageError, match=r"^cannot read --list .*list.json: No such file"):
        read(path)
    path.write_text("[4]")
    with pytest.raises(UsageError, match=r"it has more than 0 MB$"):
        read(path, limit=2)
