"""No block of a document is passed over because of its language."""

from __future__ import annotations

import pytest
from document_blocks import blocks


@pytest.mark.parametrize("document", ["README.md", "docs/models.md", "docs/precision.md"])
def test_blocks_are_commands_messages_or_python(document):
    assert {block.language for block in blocks(document)} <= {"", "python"}
