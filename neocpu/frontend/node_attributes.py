"""Attributes of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx


def attributes_of(node: onnx.NodeProto) -> Mapping[str, Any]:
    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
