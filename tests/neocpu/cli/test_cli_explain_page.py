"""``neocpu explain --html``: the page has the figures of ``--json``, and loads nothing."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import browser
import needs
import pytest

from neocpu.bench.limits import roofline
from neocpu.bench.limits.roofline import Limits
from neocpu.bench.profile import network_profiles
from neocpu.building.link import write_artifact
from neocpu.plan.pages.arena_picture import arena_blocks
from neocpu.plan.pages.page import ASSETS, SCRIPTS, WORDS, page_data, page_text
from neocpu.plan.pages.program_graph import Edge, program_graph
from neocpu.runtime.artifact import read_header
from neocpu.runtime.header_parts import Placement, Repeat
from neocpu.schedules.vocabulary.scheme import SCHEMES
from wheels.vendored import FOLDER, LIBRARIES

VIEWS = (
    *("flame", "arena", "live", "weights", "pages", "plan", "dots", "lanes", "waits"),
    *("list", "tiles"),
)
COSTS = {"scheme": None, "precision": "fp32", "cost_us": 5.0, "cost_source": "estimated"}
OP = {"workload": "4x64 +relu", "flops": 0, "in_layout": "NC", "out_layout": "NC", **COSTS}
MOVE = {"from": "NC", "to": "NC2n", "shape": [4], "kernel": "move", "cost_us": 1.0}
PLAN: dict[str, Any] = {
    "target": "llvm",
    "threads": 2,
    "opt": "global",
    "accuracy": {"name": "strict", "bound": 5e-6},
    "admission": "without Winograd and Strassen",
    "predicted_us": 14.0,
    "weights": {"given_bytes": 1000, "packed_bytes": 1000, "limit_bytes": None},
    "activation_bytes": 300,
    "search": {
        **{"solver": "exact", "cost_us": 12.0, "lower_bound_us": 12.0, "gap": 0.0},
        **{"verdict": "proven optimal", "seconds": 0.5, "variables": 3},
    },
    "ops": [{**OP, "name": f"{name}_0", "kind": name, "kernel": name} for name in "abc"],
    "transforms": [MOVE],
    "kernels": [
        {"kernel": name, "kind": "other", "calls": 1, "cost_us": 4.0, "share": 0.3}
        | {"cost_source": "estimated"}
        for name in ("a", "b", "c", "move")
    ],
    "passes": [],
    "verification": None,
}


def data_in(page):
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text()
    )
    return json.loads(found)


@pytest.fixture(autouse=True)
def _known_limits(monkeypatch):
    """Replace the limits of this machine, whose measuring takes seconds."""
    monkeypatch.setattr(
        roofline,
        "measure_limits",
        lambda threads, _: Limits(threads=threads, flops=1e11, dram=1e10),
    )


@pytest.fixture
def header(linear):
    """x goes through a, and by a transform into b and c; c reads both, twice."""
    first = 1 + len(linear.header.weights)
    a, moved, b, c = range(first, first + 4)
    places = [Placement(offset, "float32", (16,)) for offset in (0, 64, 128, 0)]
    calls = (("a", (0, 1, a)), ("move", (a, moved)), ("b", (moved, b)), ("c", (moved, b, c)))
    return replace(
        linear.header,
        stored_plan=PLAN,
        activations=tuple(places),
        arena_bytes=192,
        calls=calls,
        repeats=(Repeat(first=2, end=4, limit=3),),
        returns=(c,),
    )


def test_the_graph(header):
    graph = program_graph(header)
    assert [node.kind for node in graph.nodes] == ["a", "transform", "b", "c", "input", "output"]
    assert [node.predicted_us for node in graph.nodes[:4]] == [4.0, 4.0, 12.0, 12.0]
    found = {Edge(4, 0), Edge(0, 2, (1,)), Edge(0, 3, (1,)), Edge(2, 3), Edge(3, 5)}
    assert set(graph.edges) == found
    assert len(graph.edges) == len(found)


def test_tensors_that_are_joined_where_they_lie(header):
    first = 1 + len(header.weights)
    a, b, both, half, out = range(first, first + 5)
    shapes = [(0, (16,)), (64, (16,)), (0, (32,)), (64, (16,)), (128, (16,))]
    places = tuple(Placement(offset, "float32", shape) for offset, shape in shapes)
    calls = (("a", (0, a)), ("b", (0, b)), ("c", (both, out)), ("move", (half, out)))
    joined = replace(header, activations=places, calls=calls, returns=(out,), repeats=())
    found = {(edge.source, edge.destination) for edge in program_graph(joined).edges}
    assert found == {(4, 0), (4, 1), (0, 6), (1, 6), (6, 2), (1, 5)}
    # A place without other tensors is a second result.
    two = replace(joined, calls=(("a", (0, a, b)), ("b", (both, out))))
    found = {(edge.source, edge.destination) for edge in program_graph(two).edges}
    assert found == {(2, 0), (0, 1), (1, 3)}


def test_arena_blocks_say_where_and_when_tensors_live(header):
    # Inputs of the loop are needed until its last iteration ends.
    blocks = [(each.offset, each.first, each.last) for each in arena_blocks(header)]
    assert blocks == [(0, 0, 1), (64, 1, 3), (128, 2, 3), (0, 3, 3)]


def test_every_figure_on_the_page_agrees_with_json(cli, artifact):
    outcome = cli("explain", artifact, "--html", "page.html")
    assert (outcome.code, outcome.out) == (0, "")
    assert "wrote page.html" in outcome.err
    plan = cli("explain", artifact, "--json", "--html", "page.html").json
    data = data_in(Path("page.html"))
    assert data["plan"] == plan == read_header(artifact).stored_plan
    for node in data["nodes"]:
        if node["op"] is not None:
            assert node["predicted_us"] == pytest.approx(plan["ops"][node["op"]]["predicted_us"])
    kernels = [each for each in plan["kernels"] if each["kind"] != "runtime"]
    predicted = sum(node["predicted_us"] or 0.0 for node in data["nodes"])
    assert predicted == pytest.approx(sum(each["cost_us"] for each in kernels))
    lines = [" ".join(line.split()) for line in cli("explain", artifact).out.splitlines()]
    assert {" ".join(" ".join(fact).split()) for fact in data["facts"]} <= set(lines)


def test_the_page_loads_nothing_and_is_small(cli, artifact):
    assert cli("explain", artifact, "--html", "page.html").code == 0
    text = Path("page.html").read_text()
    assert len(text) < 300_000
    assert "default-src 'none'" in text
    assert "sourceMappingURL" not in text
    own = (ASSETS / f"{name}" for name in ("page.html", "page.css", *(f"{s}.js" for s in SCRIPTS)))
    assert not [path.name for path in own if re.search("https?://", path.read_text())]
    # The one address is in a library's comment.
    assert re.findall(r"https?://[^\s'\"]*", text) == ["https://github.com/leeoniya/uPlot"]


def test_names_are_text_and_no_markup(header):
    name = "</script><script>alert(1)</script><!--"
    text = page_text(page_data(replace(header, name=name), [("<b>", name)]))
    assert name not in text
    assert "<b>" not in text


def test_libraries_are_pinned_and_have_their_licences():
    kept = {name for library in LIBRARIES for name in library.files.values()}
    assert {path.name for path in FOLDER.iterdir()} == kept
    assert {f"{each}.LICENSE" for each in ("dagre", "uPlot")} <= kept


def test_every_parameter_of_every_scheme_is_explained():
    parameters = {field.name for scheme in SCHEMES.values() for field in fields(scheme)}
    assert parameters == set(WORDS)
    assert all("words" in vars(scheme) for scheme in SCHEMES.values())


def test_measured_beside_predicted(cli, artifact):
    assert cli("explain", artifact, "--html", "page.html", "--profile").code == 0
    data = data_in(Path("page.html"))
    calls = [node for node in data["nodes"] if node["kernel"] is not None]
    measured = data["profile"]["operators"]
    assert [each["kernel"] for each in measured] == [*(each["kernel"] for each in calls), "runtime"]
    for node, each in zip(calls, measured, strict=False):
        assert each["predicted"] * 1e6 == pytest.approx(node["predicted_us"])
    assert data["profile"]["pages"].keys() <= {"weights", "arena"}
    for held in data["profile"]["pages"].values():
        assert 0 <= held["huge"] <= held["resident"] <= held["mapped"]


def test_what_was_measured_elsewhere(cli, artifact, linear, monkeypatch):
    monkeypatch.setattr(
        network_profiles,
        "measure_limits",
        lambda threads, _: Limits(threads=threads, flops=1e11, dram=1e10),
    )
    saved = cli("bench", "profile", artifact, "--json").json
    saved["machine"]["cpu"] = "Abacus 3"
    del saved["results"][0]["profile"]["classes"]  # what follows from the rest
    Path("p.json").write_text(json.dumps(saved))
    given = ("--html", "page.html", "--measured", "p.json")
    outcome = cli("explain", artifact, *given, "--json")
    assert "p.json was measured on another machine: Abacus 3; this is" in outcome.err
    measured, profile = outcome.json["profile"], saved["results"][0]["profile"]
    for one, other in zip(measured["operators"], profile["operators"], strict=True):
        assert {**one, "sequence": other["sequence"]} == other
    assert measured["limits"]["flops"] == 1e11
    data = data_in(Path("page.html"))
    assert data["profile"] == measured
    assert dict(data["facts"])["measured"].startswith("on Abacus 3, 20")
    Path("page.html").unlink()
    outcome = cli("explain", linear.path, *given)
    assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
    assert "p.json is of another artifact: " in outcome.error
    profile["operators"][0]["seconds"] = float("inf")
    for damaged in ("", "[1]", '{"results": 5}', "[" * 100_000, json.dumps(saved)):
        Path("p.json").write_text(damaged)
        outcome = cli("explain", artifact, *given)
        assert (outcome.code, len(outcome.err.splitlines())) == (2, 1)
        assert "p.json is no profile of neocpu" in outcome.error
    assert "cannot read" in cli("explain", artifact, *given[:3], "none.json").error
    assert "add --html FILE" in cli("explain", artifact, "--measured", "p.json").error
    assert "drop one" in cli("explain", artifact, *given, "--profile").error
    assert "drop OTHER.so" in cli("explain", artifact, artifact, "--measured", "p.json").error
    assert not Path("page.html").exists()


def test_a_run_in_time(cli, artifact, linear):
    assert cli("run", artifact, "--repeat", "3", "--trace", "t.json").code == 0
    given = ("--html", "page.html", "--profile", "--trace", "t.json", "--json")
    found = cli("explain", artifact, *given).json
    data = data_in(Path("page.html"))
    # Facts that the plan lacks are shown beside it.
    assert {key: found.pop(key) for key in ("profile", "trace")} == {
        key: data[key] for key in ("profile", "trace")
    }
    assert found == data["plan"]
    assert data["trace"]["runs"] == 3
    assert "add --html FILE" in cli("explain", artifact, "--trace", "t.json").error
    cli("explain", linear.path, "--html", "other.html", "--trace", "t.json").fails(
        2, "of another artifact"
    )
    assert not Path("other.html").exists()


@needs.programs("objdump")
def test_hot_loops(cli, artifact):
    assert cli("explain", artifact, "--html", "page.html").code == 0
    data = data_in(Path("page.html"))
    convolutions = [node for node in data["nodes"] if node["kind"] == "conv2d"]
    assert all(data["loops"][node["kernel"]]["multiply_adds"] for node in convolutions)


def test_errors(cli, artifact, linear):
    assert "add --html FILE" in cli("explain", artifact, "--profile").error
    Path("foreign.so").write_bytes(b"\x7fELF and nothing else")
    outcome = cli("explain", "foreign.so", "--html", "page.html").fails(8, "foreign.so")
    for wrong in (
        {"transforms": [5]},
        {"kernels": [{"kernel": "a", "calls": 0, "cost_us": 1.0}]},
        {"predicted_us": 10**400},
    ):
        broken = replace(linear.header, stored_plan={**PLAN, **wrong})
        write_artifact(linear.built, linear.weights, broken, "broken.so")
        cli("explain", "broken.so", "--html", "page.html").fails(8, "compile the model again")
    assert "written over" in cli("explain", artifact, "--html", artifact).error
    assert artifact.read_bytes().startswith(b"\x7fELF")
    assert cli("run", artifact, "--trace", "t.json").code == 0
    recorded = Path("t.json").read_bytes()
    assert "written over" in cli("explain", artifact, "--html", "t.json", "--trace", "t.json").error
    assert Path("t.json").read_bytes() == recorded
    outcome = cli("explain", artifact, "--html", "missing/page.html")
    assert "--html" in outcome.error
    elsewhere = replace(linear.header, stored_plan=PLAN, isa_features=("avx99",))
    write_artifact(linear.built, linear.weights, elsewhere, "elsewhere.so")
    assert cli("explain", "elsewhere.so", "--html", "page.html", "--profile").error
    assert not Path("page.html").exists()


@browser.NEEDED
def test_in_a_browser(cli, artifact):
    assert cli("run", artifact, "--repeat", "3", "--trace", "t.json").code == 0
    assert cli("explain", artifact, "--html", "page.html", "--trace", "t.json").code == 0
    operator = cli("explain", artifact, "--json").json["ops"][0]
    with browser.browser() as page:
        for width, dark in ((1400, False), (390, True)):
            page.open(Path("page.html"), width, dark=dark)
            assert page.value("document.documentElement.scrollWidth") <= width
            boxes = page.value("document.querySelectorAll('#graph .node').length")
            nodes = data_in(Path("page.html"))["nodes"]
            assert 3 <= boxes <= len(nodes)
            for view in VIEWS:
                assert page.value(f"document.getElementById('{view}').clientHeight") > 10, view
            # Find, select and walk by keyboard only.
            page.value("document.getElementById('find').focus()")
            for letter in operator["name"]:
                page.press(letter)
            page.press("Enter")
            title = "document.querySelector('#details h3').textContent"
            assert page.value(title) == operator["name"]
            why = page.value("document.getElementById('why').textContent")
            assert all(part in why for part in ("Why this", "Scheme", "Hot loop"))
            page.value("document.getElementById('graph').focus()")
            page.press("ArrowUp")
            assert page.value(title) != operator["name"]
            page.value("document.querySelector('#table th button').focus()")
            page.press("Enter")
            assert page.value("document.activeElement.textContent") == "operator ▴"
            # A picture's parts can be selected by keyboard too, and each is described.
            said = "document.getElementById('picked-text').textContent"
            page.value("document.querySelector('#flame svg').focus()")
            page.press("ArrowRight")
            page.press("ArrowRight")
            assert " · predicted " in page.value(said)
            assert page.value("document.querySelectorAll('#flame .picked').length") == 1
            page.value("document.getElementById('picked-next').click()")
            page.value("document.querySelector('#arena svg').focus()")
            page.press("ArrowRight")
            assert ", needed until " in page.value(said)
            page.press("Escape")
            assert page.value(said) == ""
            page.value("document.querySelector('#lanes canvas').focus()")
            page.press("ArrowDown")
            assert " · kernels: " in page.value(said)
            for key in ("+", "ArrowRight", "-", "0"):
                page.press(key)
            assert page.complaints == []
            assert all(url.startswith(("file:", "blob:", "data:")) for url in page.requests)
