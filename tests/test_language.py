"""Code and documents are in plain English, as ``language_rules.py`` has it."""

from pathlib import Path

import pytest
from language_rules import code_faults, document_faults, file_faults, is_generated

ROOT = Path(__file__).parents[1]
FOLDERS = ("core", "examples", "foundation", "neocpu", "schedules", "search", "tests", "tuning_db")
#: Folders and documents that are not rewritten yet. The list only shrinks.
_NOT_YET = ("docs/element-types.md",)


def _rooms() -> list[Path]:
    """Return the folders of Python files that are rewritten, each to be checked alone."""
    parents = {path.parent for folder in (*FOLDERS, "wheels") for path in _files(ROOT / folder)}
    return sorted(room for room in parents if not _waits(room))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _documents() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [path for path in found if not _waits(path)]


def _waits(path: Path) -> bool:
    """Return whether a path is on the list of those not rewritten yet, or below one that is."""
    return any(path.is_relative_to(ROOT / entry) for entry in _NOT_YET)


@pytest.mark.parametrize("room", _rooms(), ids=lambda room: str(room.relative_to(ROOT)))
def test_docstrings_are_plain_english(room: Path) -> None:
    assert [fault for path in sorted(room.glob("*.py")) for fault in file_faults(path)] == []


@pytest.mark.parametrize("document", _documents(), ids=lambda path: path.name)
def test_documents_are_plain_english(document: Path) -> None:
    assert file_faults(document) == []


@pytest.mark.parametrize("entry", _NOT_YET)
def test_the_list_of_those_not_rewritten_shrinks(entry: str) -> None:
    """An entry without a fault is one to remove."""
    path = ROOT / entry
    files = [path] if path.is_file() else _files(path)
    assert any(file_faults(file) for file in files), f"remove {entry!r} from _NOT_YET"


def test_a_docstring_of_fragments_is_found() -> None:
    faults = code_faults('''
class Subject:
    """What is tested.

    Attributes
    ----------
    bits
        Of an element.
    width
        The number of elements, of which each has a sign.
    """
''')
    assert len(faults) == 4
    assert "the name Subject has 'subject'" in faults[0]
    assert "What is tested" in faults[1]
    assert "Of an element" in faults[2]
    assert "'of which'" in faults[3]


def test_a_docstring_in_sentences_passes() -> None:
    assert not code_faults('''
def rows(whole: bool) -> int:
    """Return the number of rows.

    Parameters
    ----------
    whole
        Whether rows that are cut off count.

    Returns
    -------
    int
        The number of rows. ``picked`` is a name of the code here.
    """
''')


def test_long_sentences_and_cells_of_documents_are_found() -> None:
    words = " ".join(["word"] * 41)
    assert len(document_faults(f"# Title\n\n{words}.\n")) == 1
    assert not document_faults(f"# Title\n\n```\n{words}\n```\n\n    {words}\n")
    assert not document_faults("- A `piece of code that is long`.\n- A second item.\n")
    assert len(document_faults(f"| a | {' '.join(['word'] * 13)} |\n")) == 1
    assert is_generated("# Title\n\nThis file was written by the command below.\n")
