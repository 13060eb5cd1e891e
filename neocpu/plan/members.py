"""JSON forms that have some attributes of an object, properties included."""

from __future__ import annotations

from neocpu.foundation.json_codec import JsonObject, value_to_json


def members(value: object, names: str) -> JsonObject:
    """Return the JSON forms of the attributes that a text names, by these names."""
    return {name: value_to_json(getattr(value, name)) for name in names.split()}
