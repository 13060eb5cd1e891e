"""Refuse texts that are not UTF-8.

Protobuf accepts any bytes as a text, and returns those that are not UTF-8 as bytes. onnx, and our
code that reads names, then fail with unclear errors.
"""

from __future__ import annotations

import onnx
from google.protobuf.message import Message

from neocpu.foundation.errors import ModelError
from neocpu.foundation.plain_text import shortened

_SHOWN = 60
"""Bytes of such a text that a message quotes."""


def refuse_broken_texts(model: onnx.ModelProto, where: str) -> None:
    """Raise a `ModelError` if a text of a model, or of its inner graphs, is not UTF-8."""
    waiting: list[Message] = [model]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting.extend([value] if isinstance(value, Message) else value)
            elif field.type == field.TYPE_STRING:
                _check(where, field.name, [value] if isinstance(value, str | bytes) else value)


def _check(where: str, field: str, texts: list[str | bytes]) -> None:
    for text in texts:
        if isinstance(text, bytes):
            shown = shortened(text[:_SHOWN].decode(errors="backslashreplace"), _SHOWN)
            raise ModelError(
                f"{where} is not a valid ONNX model: a text in it is not UTF-8 ({field}: '{shown}')"
            )
