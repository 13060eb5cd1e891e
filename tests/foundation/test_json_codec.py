"""Tests of `foundation.json_codec`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neocpu.foundation.json_codec import (
    OMIT_DEFAULT,
    JsonFormError,
    fields_from_json,
    fields_to_json,
    json_name,
)


class Fruit(Enum):
    APPLE = "apple"
    PEAR = "pear"


@dataclass(frozen=True, slots=True)
class Place:
    """A class whose JSON is no object."""

    row: int
    column: int

    def to_json(self) -> list[int]:
        return [self.row, self.column]

    @classmethod
    def from_json(cls, data: Any) -> Place:
        row, column = data
        return cls(int(row), int(column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Basket:
    """A nested dataclass."""

    fruit: Fruit
    weight: float = 0.5
    label: str | None = field(default=None, metadata=OMIT_DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A dataclass with a field of each kind that the codec knows."""

    name: str
    is_open: bool = True
    count: int = 0
    source: str = field(default="farm", metadata=json_name("from"))
    baskets: tuple[Basket, ...] = ()
    places: tuple[Place, ...] = ()
    size: tuple[int, float] = (1, 2.0)
    tags: frozenset[str] = frozenset()
    prices: Mapping[str, float | None] = field(default_factory=dict)
    best: Basket | None = None
    number: int | str = 0
    kind: Literal["market", "farm", 1] = "market"
    notes: Any = None


BASKETS = st.builds(
    Basket,
    fruit=st.sampled_from(Fruit),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    label=st.none() | st.text(),
)
STALLS = st.builds(
    Stall,
    name=st.text(),
    is_open=st.booleans(),
    count=st.integers(),
    source=st.text(),
    baskets=st.lists(BASKETS).map(tuple),
    places=st.lists(st.builds(Place, st.integers(), st.integers())).map(tuple),
    size=st.tuples(st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    tags=st.frozensets(st.text()),
    prices=st.dictionaries(st.text(), st.none() | st.floats(allow_nan=False)),
    best=st.none() | BASKETS,
    number=st.integers() | st.text(),
    kind=st.sampled_from(["market", "farm", 1]),
    notes=st.none() | st.lists(st.integers()),
)


@given(STALLS)
def test_written_values_are_read_back(stall: Stall) -> None:
    text = json.dumps(fields_to_json(stall))
    assert fields_from_json(Stall, json.loads(text), exact=True) == stall


def test_members_have_the_names_and_the_order_of_fields() -> None:
    stall = Stall(name="a", baskets=(Basket(fruit=Fruit.PEAR),), tags=frozenset("ba"))
    found = fields_to_json(stall)
    assert list(found)[:4] == ["name", "is_open", "count", "from"]
    assert found["baskets"] == [{"fruit": "pear", "weight": 0.5}]
    assert found["tags"] == ["a", "b"]
    labelled = Basket(fruit=Fruit.PEAR, label="soft")
    assert fields_to_json(labelled)["label"] == "soft"


def test_missing_members_take_defaults() -> None:
    assert fields_from_json(Stall, {"name": "a"}) == Stall(name="a")


def test_unknown_members_are_ignored_unless_all_must_be_known() -> None:
    assert fields_from_json(Stall, {"name": "a", "colour": 1}) == Stall(name="a")
    with pytest.raises(JsonFormError, match=r"^colour: not a field of Stall$"):
        fields_from_json(Stall, {"name": "a", "colour": 1}, exact=True)


@pytest.mark.parametrize(
    ("member", "value", "place"),
    [
        ("name", 1, "name"),
        ("name", None, "name"),
        ("count", 1.0, "count"),
        ("count", True, "count"),
        ("is_open", 1, "is_open"),
        ("from", None, "from"),
        ("baskets", {}, "baskets"),
        ("baskets", [{"fruit": "pear"}, {"fruit": "leek"}], "baskets[1].fruit"),
        ("baskets", [{}], "baskets[0].fruit"),
        ("baskets", [3], "baskets[0]"),
        ("places", [[1, 2], [3]], "places[1]"),
        ("places", [[1, None]], "places[0]"),
        ("size", [1], "size"),
        ("size", [1, "2"], "size[1]"),
        ("prices", {"leek": "much"}, "prices.leek"),
        ("prices", [], "prices"),
        ("best", {"fruit": []}, "best.fruit"),
        ("number", None, "number"),
        ("kind", "shop", "kind"),
        ("kind", True, "kind"),
    ],
)
def test_errors_name_the_place(member: str, value: Any, place: str) -> None:
    with pytest.raises(JsonFormError) as caught:
        fields_from_json(Stall, {"name": "a", member: value})
    assert caught.value.place == place
    assert str(caught.value).startswith(f"{place}: ")


def test_a_member_that_is_missing_and_has_no_default_is_named() -> None:
    with pytest.raises(JsonFormError, match=r"^name: missing$"):
        fields_from_json(Stall, {})
    with pytest.raises(JsonFormError, match="an object"):
        fields_from_json(Stall, [])


def test_integers_are_read_as_floats() -> None:
    weight = fields_from_json(Basket, {"fruit": "pear", "weight": 2}).weight
    assert weight == 2.0
    assert type(weight) is float
