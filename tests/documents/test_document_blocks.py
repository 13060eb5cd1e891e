"""Commands and snippets are recognised in a document."""

from __future__ import annotations

import document_blocks
import pytest

TEXT = """\
# Title

    neocpu compile net.onnx -o net.so   # indented
    neocpu run net.so

A sentence names `neocpu explain` and `neocpu explain --json`, and shows `neocpu run net.so
--repeat 5`.

```python
if True:
    x = 1
```

| option | what |
|---|---|
| `--fit crop|stretch`, `--mean` | words |

  - A list has a fence, too:

    ```
    $ neocpu inspect net.so
    ```
"""


@pytest.mark.parametrize("name", ["README.md", "docs/models.md", "docs/precision.md"])
def test_documents_have_commands_messages_and_python_alone(name):
    """No block is passed over because of its language."""
    assert {block.language for block in document_blocks.blocks(name)} <= {"", "python"}


@pytest.fixture
def document(tmp_path, monkeypatch):
    (tmp_path / "d.md").write_text(TEXT.replace("crop|", "crop\\|"))
    monkeypatch.setattr(document_blocks, "ROOT", tmp_path)


def test_blocks_are_indented_or_fenced_and_know_their_lines(document):
    found = [(block.line, block.language, block.text) for block in document_blocks.blocks("d.md")]
    assert found == [
        (3, "", "neocpu compile net.onnx -o net.so   # indented\nneocpu run net.so"),
        (10, "python", "if True:\n    x = 1"),
        (21, "", "neocpu inspect net.so"),
    ]


def test_a_command_in_a_sentence_has_something_to_work_on(document):
    found = [(command.line, command.text) for command in document_blocks.commands("d.md")]
    assert found == [(6, "neocpu run net.so --repeat 5")]


def test_options_are_those_of_first_cells(document):
    found = [option.text for option in document_blocks.options("d.md")]
    assert found == ["--fit crop|stretch", "--mean"]
