"""Names in models and files are untrusted: no command prints control sequences from them."""

import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from command_line import conv_model
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_plans import small_operator, small_plan, small_transform

from neocpu.building.link import write_artifact
from neocpu.foundation.console.progress_line import PlainProgress, show_progress
from neocpu.foundation.console.terminal import PlainFormatter, Terminal, print_table
from neocpu.foundation.progress import Progress
from neocpu.plan.operators import PlannedScheme
from neocpu.plan.outcome import Promise

NASTY = "a\x1b[2J\x1b]0;t\x07\x9b31m\u202eb\u2069\r\nneocpu: error: forged\x7f\u2028[red]c[/]\\"

# Control sequences among letters that are shown unchanged.
names = st.text(
    st.sampled_from(
        "ab é[]/\\%{}'\"\x00\x07\x08\t\n\r\x0b\x1b\x7f\x85\x9b\x9d\u200e\u2028\u202e\u2069"
    ),
    min_size=1,
    max_size=40,
).map(lambda text: f"n{text}")
each = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def assert_plain(text):
    """Check that a text has only lines of printable characters."""
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)


def renamed(toy, name, path):
    """Write a compiled model again under hostile names, with valid hashes."""
    header = toy.header
    operator = small_operator(
        name,
        kind="conv2d",
        workload=name,
        scheme=PlannedScheme(template=name, parameters={name: 3}),
        in_layout=name,
        out_layout=name,
        cost_source=name,
    )
    plan = small_plan(
        target=name,
        opt=name,
        accuracy=Promise(name=name, bound=1e-4),
        search=replace(small_plan().search, solver=name, verdict=name),
        ops=(operator,),
        transforms=(small_transform(source=name, destination=name, cost_source=name),),
    )
    hostile = replace(
        header,
        name=name,
        neocpu_version=name,
        target=name,
        inputs=tuple(replace(spec, name=f"{name}{spec.name}") for spec in header.inputs),
        outputs=tuple(replace(spec, name=f"{name}{spec.name}") for spec in header.outputs),
        stored_plan=plan.to_json(),
    )
    write_artifact(toy.built, toy.weights, hostile, path)
    return path


@each
@given(names.map(lambda name: name.replace("\0", "")))
@example(NASTY)
def test_in_an_artifact(cli, linear, name):
    path = renamed(linear, name, Path("net.so"))
    for command in (["run", path], ["inspect", path], ["explain", path]):
        outcome = cli(*command).succeeds()
        assert_plain(outcome.out + outcome.err)
        # JSON is exact, and in ASCII.
        document = cli(*command, "--json")
        assert_plain(document.out)
        assert json.dumps(name)[1:-1] in document.out
        json.loads(document.out)
    failed = cli("run", path, "--input", f"{name}=missing.npy")
    assert failed.code == 2
    assert_plain(failed.out + failed.err)


def hostile_models(name):
    """Return models that fail for different reasons, each with ``name`` wherever one goes."""
    unknown, dynamic, twice, invalid = (conv_model() for _ in range(4))
    for model in (unknown, dynamic, twice, invalid):
        model.graph.name = name
        for node in model.graph.node:
            node.name = name
    unknown.graph.node[1].op_type = name
    dynamic.graph.input[0].name = dynamic.graph.node[0].input[0] = name
    dynamic.graph.input[0].type.tensor_type.shape.dim[2].dim_param = name
    twice.graph.output[0].name = twice.graph.node[1].output[0] = name
    twice.graph.output.append(twice.graph.output[0])
    invalid.graph.node[1].input[0] = name
    return [unknown, dynamic, twice, invalid]


@each
@given(names)
@example(NASTY)
def test_in_a_model_that_is_refused(cli, name):
    for model, option in zip(hostile_models(name), ("-q", "--json", "--debug", "-v"), strict=True):
        onnx.save(model, "net.onnx")
        outcome = cli("compile", "net.onnx", "--only-db", option)
        assert outcome.code in (3, 4)
        assert_plain(outcome.out + outcome.err)


@each
@given(names.map(lambda name: name.replace("/", "").replace("\0", "")))
@example(NASTY.replace("/", ""))
@example(os.fsdecode(b"n\xff\x1b[m"))
def test_in_a_file_name(cli, artifact, name):
    path = Path(name)
    path.write_bytes(artifact.read_bytes())
    for command in ("run", "inspect", "explain"):
        outcome = cli(command, path).succeeds()
        assert_plain(outcome.out + outcome.err)
        assert cli(command, path, "--json").json
    for command in (
        ("compile", path, "--only-db"),
        ("run", path / "x"),
        ("run", artifact, "--input", path),
    ):
        outcome = cli(*command, "--json")
        assert outcome.code in (2, 3, 8)
        assert_plain(outcome.out + outcome.err)
    path.unlink()


def test_in_a_model_that_compiles(cli):
    model = conv_model()
    names = {name: f"{NASTY}{name}" for name in ("image", "weights", "sums", "features")}
    for node in model.graph.node:
        node.name = NASTY
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = names[value.name]
    file = NASTY.replace("/", "") + ".onnx"
    onnx.save(model, file)
    for command in (
        ["compile", file, "-o", "out.so", "-vv", "--tune-budget", "0.01", "--only-db", "--db", "d"],
        ["run", "out.so"],
        ["explain", "out.so"],
        ["inspect", "out.so"],
        ["tune", file, "--strategy", "analytic", "--db", "d"],
        ["bundle", "out.so", "-o", "folder"],
    ):
        outcome = cli(*command).succeeds()
        assert_plain(outcome.out + outcome.err)


class TestSinks:
    def test_log(self):
        record = logging.makeLogRecord({"msg": "of %s", "args": (NASTY,), "levelname": "WARNING"})
        assert_plain(PlainFormatter("neocpu: %(message)s").format(record))

    @pytest.mark.parametrize("terminal", [True, False])
    def test_progress(self, capfd, terminal, monkeypatch):
        import sys

        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
        monkeypatch.setenv("COLUMNS", "400")  # all of the name fits in
        with show_progress(sys.stderr, quiet=False) as report:
            report(Progress(NASTY, 1, 2, NASTY))
        shown = capfd.readouterr().err
        assert "forged" in shown
        for hostile in ("\x1b[2J", "\x1b]0", "\x9b", "\u202e", "\nneocpu: error"):
            assert hostile not in shown

    def test_plain_progress(self, capsys):
        import sys

        PlainProgress(sys.stdout)(Progress(NASTY, detail=NASTY))
        assert_plain(capsys.readouterr().out)

    def test_table_note_and_error(self, capsys):
        print_table((NASTY,), [(NASTY,)])
        Terminal().note(NASTY)
        Terminal(json=True).fail(NASTY, 2)
        out, err = capsys.readouterr()
        assert_plain(out)
        assert_plain(err)
