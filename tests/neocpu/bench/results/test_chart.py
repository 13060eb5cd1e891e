"""Charts: valid, complete, and equal for equal results."""

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic import MACHINE, PEERS, model, result, scaling, suite

from neocpu.bench.race.presentation import present
from neocpu.bench.race.report import SuiteReport
from neocpu.bench.results import chart
from neocpu.bench.results.presentation import Run
from neocpu.foundation.errors import UsageError

pytest.importorskip("matplotlib")


def _draw(path, models, threads):
    run = Run(command="neocpu bench", machine=MACHINE, peers=PEERS, threads=threads, rounds=6)
    figures = present(SuiteReport(tuple(models)), run, detailed=False).figures
    return [chart.draw(figure, path) for figure in figures]


def _texts(path):
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return ["".join(node.itertext()).strip() for node in root.iter() if node.tag.endswith("}text")]


def test_every_model_and_engine_is_named(tmp_path):
    drawn = _draw(tmp_path / "c.svg", suite().models, (2,))
    assert drawn == [tmp_path / "c.svg"]
    texts = _texts(tmp_path / "c.svg")
    assert {"won", "lost", "even", "neocpu", "onnxruntime", "openvino"} <= set(texts)
    assert "Test CPU, threads: 2, float32, 2026-01-02" in texts
    # The length of neocpu's bars: best peer / neocpu.
    assert {"2.00", "0.50", "1.00"} <= set(texts)


def test_equal_results_give_equal_files(tmp_path):
    for name in ("a.svg", "b.svg"):
        _draw(tmp_path / name, suite().models, (2,))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_scaling_beside_speed(tmp_path):
    models = [model("net", 10, 20, 20, scaling=scaling()), model("other", 10, 20)]
    drawn = _draw(tmp_path / "c.svg", models, (1, 2))
    assert drawn == [tmp_path / "c.svg", tmp_path / "c-scaling.svg"]
    texts = _texts(tmp_path / "c-scaling.svg")
    assert {
        "net over the number of threads",
        "threads",
        "runs a second",
        "neocpu",
        "openvino",
    } <= set(texts)
    assert not any("other" in text for text in texts)
    assert "Test CPU, threads: 1, 2, float32, 2026-01-02" in texts


def test_a_wrong_engine_has_no_bar(tmp_path):
    one = model("net", 10, 20)
    results = (*one.latency.results, result("openvino", 0.01, error=0.5))
    wrong = replace(one, latency=replace(one.latency, results=results))
    _draw(tmp_path / "c.svg", [wrong], (2,))
    # A bar a thousand times as fast would have stretched the axis.
    assert not any(text.replace(",", "").endswith("000") for text in _texts(tmp_path / "c.svg"))


@pytest.mark.parametrize(("name", "magic"), [("c.png", b"\x89PNG"), ("c.pdf", b"%PDF")])
def test_scaling_alone_takes_the_name(tmp_path, name, magic):
    path = tmp_path / name
    assert _draw(path, [model("net", 10, scaling=scaling())], (1, 2)) == [path]
    assert path.read_bytes().startswith(magic)
    assert _draw(path, [model("net", 10)], (2,)) == []


@pytest.mark.parametrize("name", ["c.jpeg", "c", "c.svgz"])
def test_unknown_suffix(name):
    with pytest.raises(UsageError, match=r"suffix must be one of \.svg, \.png, \.pdf"):
        chart.check_suffix(Path(name))


def test_matplotlib_is_looked_for_and_not_imported(monkeypatch):
    before = set(sys.modules)
    assert chart.available()
    assert not {name for name in set(sys.modules) - before if name.startswith("matplotlib")}
