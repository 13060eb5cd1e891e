"""Responses, as bytes."""

import json

import ml_dtypes
import numpy as np
import pytest

from neocpu.serving.refusals import NotFiniteError
from neocpu.serving.request import InferRequest, RequestedOutput
from neocpu.serving.response import render_response

RESULTS = {
    "f": np.array([[0.1, -3e38], [1e-45, 5]], "float32"),
    "i": np.array([2**63 - 1, -1]),
    "b": np.array([True, False]),
    "none": np.zeros((0, 4), "float16"),
}


def render(*wanted, identity=None):
    outputs = tuple(RequestedOutput(*one, RESULTS[one[0]].dtype.name) for one in wanted)
    return render_response("net", "3", InferRequest(identity, {}, outputs), RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_json_gives_the_very_numbers(name):
    found = render((name, False), identity="é")
    document = json.loads(found.body)
    assert found.json_bytes is None
    assert document["id"] == "é"
    entry = document["outputs"][0]
    array = np.array(entry["data"], RESULTS[name].dtype).reshape(entry["shape"])
    assert array.tobytes() == RESULTS[name].tobytes()


def test_binary_data_follow_the_json_in_order():
    found = render(("i", True), ("b", False), ("f", True))
    document = json.loads(found.body[: found.json_bytes])
    assert [o["name"] for o in document["outputs"]] == ["i", "b", "f"]
    assert [o.get("parameters") for o in document["outputs"]] == [
        {"binary_data_size": 16},
        None,
        {"binary_data_size": 16},
    ]
    assert found.body[found.json_bytes :] == RESULTS["i"].tobytes() + RESULTS["f"].tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_json_has_no_infinities(value, monkeypatch):
    monkeypatch.setitem(RESULTS, "f", np.array([1, value], "float32"))
    with pytest.raises(NotFiniteError, match="ask for binary"):
        render(("f", False))
    found = render(("f", True))
    assert found.body.endswith(RESULTS["f"].tobytes())


def test_bfloat16_is_numbers_in_json_and_bits_in_binary():
    """This holds whether or not numpy knows the type."""
    bits = np.array([0x3F80, 0xC020], "uint16")
    for array in (bits, bits.view(ml_dtypes.bfloat16)):
        wanted = (RequestedOutput("h", False, "bfloat16"), RequestedOutput("h", True, "bfloat16"))
        found = render_response("net", "3", InferRequest(None, {}, wanted), {"h": array})
        entries = json.loads(found.body[: found.json_bytes])["outputs"]
        assert [entry["datatype"] for entry in entries] == ["BF16", "BF16"]
        assert entries[0]["data"] == [1.0, -2.5]
        assert found.body[found.json_bytes :] == bits.tobytes()
