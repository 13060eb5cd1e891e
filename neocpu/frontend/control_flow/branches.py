"""Rewrite If: inline the branch that a constant selects, or both, with a selection at run time."""

from __future__ import annotations

import numpy as np
import onnx

from neocpu.frontend.control_flow.known_values import Unknown, single
from neocpu.frontend.control_flow.rewriting import Rewriting


def rewrite_if(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    """Replace an If; return whether that was possible yet."""
    condition = rewriting.value(node.input[0])
    if condition is Unknown.YET:
        return False
    if isinstance(condition, np.ndarray):
        taken = "then_branch" if single(condition, node, "condition") else "else_branch"
        for result, name in zip(_inline(node, taken, rewriting), node.output, strict=True):
            rewriting.alias(result, name)
        return True
    if rewriting.has_rows(node):
        return False  # `bound_rows` handles branches that make different numbers of rows
    branches = (_inline(node, each, rewriting) for each in ("then_branch", "else_branch"))
    for chosen, other, name in zip(*branches, node.output, strict=True):
        if name:
            rewriting.alias(rewriting.select(node, node.input[0], chosen, other), name)
    return True


def _inline(node: onnx.NodeProto, branch: str, rewriting: Rewriting) -> tuple[str, ...]:
    return rewriting.inline(node, rewriting.body(node, branch), (), branch.removesuffix("_branch"))
