"""Numerics in workloads and their JSON, and the units that compute with them."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
from conv_workloads import conv_workload
from hypothesis import given
from hypothesis import strategies as st

from neocpu.foundation.dtypes import DTYPES
from neocpu.foundation.errors import UnsupportedError
from neocpu.schedules import registry
from neocpu.schedules.operators.dense import DenseWorkload
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.memory_workloads import TransformWorkload
from neocpu.schedules.vocabulary.numerics import FLOAT32, Numerics, Quantisation
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.tuning_db.record import Record
from neocpu.tuning_db.record_file import read_packed

ROOT = Path(__file__).parents[3]
PER_TENSOR, PER_CHANNEL = Quantisation("tensor", False), Quantisation("channel", True)
U8S8 = Numerics(
    data="uint8",
    weights="int8",
    sum="int32",
    output="uint8",
    quantised=(("data", PER_TENSOR), ("output", PER_TENSOR), ("weights", PER_CHANNEL)),
)
S8S8 = Numerics(data="int8", weights="int8", sum="int32", output="int8")

integers = st.sampled_from(["int8", "uint8", "int16"])
scales = st.builds(Quantisation, st.sampled_from(["tensor", "channel"]), st.booleans())
numerics = st.builds(
    lambda data, weights, total, output, chosen: Numerics(
        data=data,
        weights=weights,
        sum=total,
        output=output,
        quantised=tuple(sorted(chosen.items())),
    ),
    integers,
    integers,
    st.sampled_from(["int32", "float32"]),
    integers,
    st.dictionaries(st.sampled_from(["data", "weights", "output"]), scales),
)


@given(numerics | st.sampled_from(sorted(DTYPES)).map(Numerics.uniform))
def test_numerics_survive_json(each):
    workload = conv_workload(1, 8, 9, 9, 8, (3, 3), numerics=each)
    again = Conv2dWorkload.from_json(json.loads(json.dumps(workload.to_json())))
    assert again == workload
    assert again.key() == workload.key()
    assert ("dtype" in workload.to_json()) == each.is_uniform


def test_existing_records_keep_their_keys():
    workload = conv_workload(1, 8, 9, 9, 8, (3, 3))
    assert workload.to_json()["dtype"] == "float32"
    assert workload.key() == "7e17883aa638712e"
    assert "numerics" not in workload.to_json()
    assert DenseWorkload(1, 10, 20).to_json() == {
        "kind": "dense", "m": 1, "n": 10, "k": 20, "dtype": "float32", "epilogue": [],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["znver3", "znver4", "znver5", "sapphirerapids"])
def test_shipped_records_are_as_they_would_be_written(name):
    records = list(read_packed(ROOT / "tuning_db" / "records" / f"{name}.records"))
    for record in records[:: len(records) // 50]:
        assert Record.from_line(record.to_line().encode()) == record


def test_the_order_of_roles_does_not_matter():
    roles = (("weights", PER_CHANNEL), ("data", PER_TENSOR), ("output", PER_TENSOR))
    assert (
        Numerics(data="uint8", weights="int8", sum="int32", output="uint8", quantised=roles) == U8S8
    )


@pytest.mark.parametrize("cpu", ["znver3", "skylake-avx512", "cortex-a72"])
@pytest.mark.parametrize("numerics", [U8S8, S8S8, Numerics.uniform("float64")], ids=str)
@pytest.mark.parametrize(
    "workload",
    [
        conv_workload(1, 64, 9, 9, 64, (3, 3)),
        conv_workload(1, 64, 9, 9, 64, (1, 1)),
        conv_workload(1, 64, 9, 9, 64, (3, 3), groups=64),
        conv_workload(1, 64, 9, 9, 64, (3, 3), groups=16),
    ],
    ids=str,
)
def test_templates_take_no_other_numerics(workload, numerics, cpu):
    other, target = replace(workload, numerics=numerics), parse_target(cpu)
    assert str(other) != str(workload)
    for template in registry.TEMPLATES.values():
        if template.workload is not Conv2dWorkload or template.name == "conv2d_dot":
            continue
        if template.name == "conv2d_winograd" and numerics == U8S8:  # exact: test_exact_winograd.py
            continue
        assert not template.applies(other, target)


def test_small_weights_are_said_once():
    small = replace(U8S8, int16_sums=4)
    assert small.to_json()["numerics"]["int16_sums"] == 4
    assert Numerics.take_from(small.to_json()) == small
    assert "int16_sums" not in U8S8.to_json()["numerics"]
    for wrong in ({"int16_sums": 3}, {"int16_sums": 2, "data": "int8"}):
        with pytest.raises(ValueError, match="impossible numerics"):
            replace(small, **wrong)


def test_casts_are_transforms():
    floats, bytes_ = Format(DataLayout(8), "float32"), Format(DataLayout(16), "int8")
    cast = TransformWorkload.between((1, 24, 7, 9), floats, bytes_)
    assert (cast.source, cast.destination) == (floats, bytes_)
    data = json.loads(json.dumps(cast.to_json()))
    assert (data["dtype"], data["out_dtype"]) == ("float32", "int8")
    assert TransformWorkload.from_json(data) == cast
    plain = TransformWorkload(batch=1, channels=24, height=7, width=9, in_block=8, out_block=16)
    assert plain.key() != cast.key()
    assert "out_dtype" not in plain.to_json()
    for change in ({"out_dtype": None}, {"out_dtype": "float32"}, {"out_dtype": 8}):
        with pytest.raises(ValueError, match="transform"):
            TransformWorkload.from_json({**data, **change})
    with pytest.raises(UnsupportedError):
        registry.schemes(cast, parse_target("znver4"))


def test_numerics_are_part_of_the_key():
    keys = {
        conv_workload(1, 8, 9, 9, 8, (3, 3), numerics=each).key() for each in (FLOAT32, U8S8, S8S8)
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    "data",
    [
        {"dtype": 32},
        {"dtype": "float33"},
        {"dtype": None, "numerics": {}},
        {"numerics": [["data", "int8"], ["weights", "int8"], ["sum", "int32"], ["output", "int8"]]},
        {"numerics": {**S8S8.to_json()["numerics"], "quantised": {}}},
        {"numerics": {**S8S8.to_json()["numerics"], "quantised": []}},
        {"numerics": dict.fromkeys(("data", "weights", "sum", "output"), "float32")},
        {"dtype": None, "numerics": {"data": "int8"}},
        {"numerics": 8},
        {"numerics": {**S8S8.to_json()["numerics"], "sum": "int33"}},
        {"numerics": {**S8S8.to_json()["numerics"], "quantised": {"sum": {}}}},
        {"numerics": {**S8S8.to_json()["numerics"], "quantised": {"data": {"symmetric": True}}}},
        {
            "numerics": {
                **Numerics(
                    data="float32", weights="int8", sum="float32", output="float32"
                ).to_json()["numerics"],
                "quantised": {"data": {"granularity": "tensor", "symmetric": True}},
            }
        },
        {
            "numerics": {
                **S8S8.to_json()["numerics"],
                "quantised": {"data": {"granularity": "row", "symmetric": True}},
            }
        },
    ],
    ids=str,
)
def test_impossible_numerics_are_refused(data):
    fields = conv_workload(1, 8, 9, 9, 8, (3, 3)).to_json()
    if "numerics" in data:
        del fields["dtype"]
    with pytest.raises((ValueError, TypeError, KeyError)):
        Conv2dWorkload.from_json({**fields, **data})


@pytest.mark.parametrize(
    ("cpu", "numerics", "group", "lanes"),
    [
        ("znver3", FLOAT32, 1, 8),
        ("znver4", FLOAT32, 1, 16),
        ("skylake-avx512", FLOAT32, 1, 16),
        ("cortex-a72", FLOAT32, 1, 4),
        ("x86-64", FLOAT32, 1, 4),
        ("znver4", U8S8, 4, 16),
        ("cascadelake", U8S8, 4, 16),
        ("alderlake", U8S8, 4, 8),
        ("neoverse-n1", S8S8, 4, 4),
        ("neoverse-v1", U8S8, 4, 4),
    ],
    ids=str,
)
def test_units_by_numerics(cpu, numerics, group, lanes):
    target = parse_target(cpu)
    unit = target.dot_unit(numerics)
    assert (unit.group, unit.lanes, unit.macs) == (group, lanes, group * lanes)
    assert unit.lanes * 4 == unit.vector_bytes == target.vector_bytes
    assert unit.registers == target.vector_registers
    assert unit.by_lane == (target.machine == "aarch64")


@pytest.mark.parametrize(
    ("cpu", "numerics"),
    [("nehalem", U8S8), ("znver3", S8S8), ("znver4", S8S8), ("cortex-a72", S8S8)],
    ids=str,
)
def test_a_cpu_without_a_unit_says_so(cpu, numerics):
    target = parse_target(cpu)
    assert target.find_dot_unit(numerics) is None
    with pytest.raises(UnsupportedError, match=f"{cpu} has no instruction for products of"):
        target.dot_unit(numerics)


TYPED = {
    "Conv2dWorkload": ("numerics", 11),
    "DenseWorkload": ("numerics", 4),
    "PoolWorkload": ("dtype", 12),
    "TransformWorkload": ("dtype", 7),
    "JoinWorkload": ("dtype", 7),
}


def test_the_project_inherits_no_element_type():
    """Workloads made outside of tests state their numerics: float32 is no silent default."""
    guesses = []
    for folder in ("schedules", "search", "neocpu", "tuning_db"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text())):
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                    continue
                name, place = TYPED.get(call.func.id, ("", 0))
                starred = any(isinstance(argument, ast.Starred) for argument in call.args)
                named = {keyword.arg for keyword in call.keywords} & {name, None}
                if name and not starred and not named and len(call.args) < place:
                    guesses.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert not guesses
