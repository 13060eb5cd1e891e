"""Schemes by the name of their template, and read from JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from neocpu.foundation.json_codec import JsonObject
from neocpu.schedules.vocabulary import group_schemes, scheme
from neocpu.schedules.vocabulary.scheme import MAX_PARAMETER, OPTIONAL, Scheme

# The classes are in these modules and not in the templates' files, because databases are read where
# no compiler is installed.
SCHEMES: dict[str, type[Scheme]] = {
    cls.template: cls
    for module in (scheme, group_schemes)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Scheme) and "template" in vars(cls)
}


def register_scheme(cls: type[Scheme]) -> None:
    """Make a template's scheme class known to `scheme_from_json`.

    Raises ValueError if another class has that name.
    """
    if SCHEMES.setdefault(cls.template, cls) is not cls:
        raise ValueError(f"{cls.template} has other schemes than {cls.__name__}")


def unregister_scheme(cls: type[Scheme]) -> None:
    SCHEMES.pop(cls.template, None)


def scheme_from_json(data: JsonObject) -> Scheme:
    """Read a scheme from JSON; the inverse of `Scheme.to_json`.

    Raises ValueError if the template is unknown, or a parameter is missing, unexpected or of the
    wrong type.
    """
    params = dict(data)
    name = params.pop("template", None)
    cls = SCHEMES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"unknown template {name!r}")
    known = {f.name: f.type for f in fields(cls)}
    given = set(params) | known.keys() & set(OPTIONAL)
    if given != known.keys() or not all(_fits(v, k, known[k]) for k, v in params.items()):
        raise ValueError(f"bad parameters for {name}: {params!r}; expected {sorted(known)}")
    return cls(**params)


def _fits(value: Any, name: str, kind: Any) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    return type(value) is int and (0 if name in OPTIONAL else 1) <= value <= MAX_PARAMETER
