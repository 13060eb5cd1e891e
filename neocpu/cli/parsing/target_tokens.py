"""Parsing ``--target llvm -mcpu=skylake-avx512 -mattr=+avx2`` without quotes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

OPTION: Final = "--target"
# A target's own option: one dash, a word, a value. None of our short options takes this form.
_TARGET_OPTION: Final = re.compile(r"-[a-z][a-z0-9-]+=.*", re.DOTALL)


def fold_target(arguments: Sequence[str]) -> list[str]:
    """Join the tokens of each target to one ``--target=…`` argument.

    A target consists of the token after ``--target`` (or of the text after ``=`` in it) and of all
    target options that follow. A token that is quoted already, JSON or ``host`` does not change.

    >>> fold_target(["--target", "llvm", "-mcpu=znver4", "net.onnx"])
    ['--target=llvm -mcpu=znver4', 'net.onnx']
    """
    folded: list[str] = []
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        if token == "--":
            return [*folded, token, *rest]
        if token != OPTION and not token.startswith(f"{OPTION}="):
            folded.append(token)
            continue
        parts = [token.removeprefix(f"{OPTION}=")] if token != OPTION else []
        if not parts and rest and not rest[0].startswith("-"):
            parts.append(rest.pop(0))
        while rest and _TARGET_OPTION.fullmatch(rest[0]):
            # The shell removed the quotes, which a value with a space needs again.
            parts.append(shlex.quote(rest.pop(0)))
        folded.append(f"{OPTION}={' '.join(parts)}" if parts else OPTION)
    return folded
