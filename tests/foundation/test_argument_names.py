"""Messages speak of options on the command line, and of arguments in Python."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import neocpu
from neocpu.cli.main import main
from neocpu.foundation.argument_names import _NAMES, with_arguments
from neocpu.foundation.errors import UsageError, for_command_line

ROOT = Path(__file__).parents[2]
COMMANDS_ONLY = {
    # No function of `neocpu` has these.
    *("--check", "--force", "--help", "--histograms", "--host", "--inputs", "--json", "--list"),
    *(
        "--list-rules",
        "--max-batch",
        "--max-bytes-in-flight",
        "--max-request-bytes",
        "--model-control",
        "--name",
    ),
    *("--operators", "--port", "--quiet", "--repeat", "--rounds", "--trace", "--vs"),
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("--shape x:1,3,8 or --batch 1", "shapes={'x': (1, 3, 8)} or batch=1"),
        ("--shape y:0:4: too few", "shapes={'y:0': (4,)}: too few"),
        ("--shape x:8..32/8,1..9: no", "shapes={'x': (range(8, 33, 8), range(1, 10))}: no"),
        ("--shape h=8..32/8 --typical h=16", "shapes={'h': range(8, 33, 8)} typical={'h': 16}"),
        ("--typical x:1,16: no", "typical={'x': (1, 16)}: no"),
        ("with --shape x:N,3", "with shapes={'x': (N, 3)}"),
        ("--shape n=1.5: no", "shapes={'n': 1.5}: no"),
        ("with --shape NAME=VALUE", "with shapes={'NAME': VALUE}"),
        ("a larger input (--shape)", "a larger input (shapes=)"),
        ("unknown --opt 'locla'; known: nchw", "unknown opt='locla'; known: nchw"),
        ("drop it, or --precision bf16", "drop it, or precision='bf16'"),
        ("--search-seconds with --solver dp", "search_seconds= with solver='dp'"),
        ("--max-weights 1.0 kB is too small", "max_weights=1.0 kB is too small"),
        ("no server of --key zen is left", "no server of key='zen' is left"),
        ("--key needs --tracker HOST:PORT", "key needs tracker='HOST:PORT'"),
        ("compile with --target host, or", "compile with target='host', or"),
        ("--shape names an input 'y'", "shapes names an input 'y'"),
        ("--resize makes 2x2 of --db", "resize makes 2x2 of databases="),
        ("--vs names no engine", "--vs names no engine"),
        ("pass --no-verify to keep it", "pass verify=False to keep it"),
        ("--input x=u8:nhwc:4x8: no", "input='x=u8:nhwc:4x8': no"),
        ("--nms yolo: the outputs", "nms='yolo': the outputs"),
        ("--nms yolo:0.25:0.5 and --std 0: no", "nms='yolo:0.25:0.5' and std=0: no"),
        ("--output y=top5: no", "outputs={'y': 'top5'}: no"),
        # Other programs, and commands in full, stay.
        ("python -m tf --threads 2 --output b", "python -m tf --threads 2 --output b"),
        ("see neocpu compile --list-rules", "see neocpu compile --list-rules"),
        ("use neocpu compile --input x=u8:4x4", "use neocpu compile --input x=u8:4x4"),
        ("no file a--batch.onnx, a -- b", "no file a--batch.onnx, a -- b"),
    ],
)  # fmt: skip
def test_options_become_arguments(message: str, expected: str) -> None:
    assert with_arguments(message) == expected
    assert with_arguments(expected) == expected
    assert str(UsageError(message)) == expected
    with for_command_line():
        assert str(UsageError(message)) == message
    assert str(UsageError(message)) == expected


def test_python_and_the_command_line_read_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        neocpu.UsageError, match=r"^shapes=\{'input': \(1, 3, 8, 8\)\} and batch=2 "
    ):
        neocpu.compile("resnet18", shapes={"input": (1, 3, 8, 8)}, batch=2)
    assert (
        main(["compile", "resnet18", "--shape", "input:1,3,8,8", "--batch", "2", "-o", "no.so"])
        == 2
    )
    assert "--shape input:1,3,8,8 and --batch 2 contradict" in capsys.readouterr().err
    with pytest.raises(neocpu.UsageError, match="search_seconds is for solver="):
        neocpu.compile("resnet18", solver="exact", search_seconds=1)


def test_every_renamed_option_is_an_argument() -> None:
    functions = (
        neocpu.compile,
        neocpu.compile_fat,
        neocpu.compile_calibrated,
        neocpu.tune,
        neocpu.load,
        neocpu.Processing.parse,
    )
    known = {name for each in functions for name in inspect.signature(each).parameters}
    for name in _NAMES.values():
        argument, equals, _ = name.partition("=")
        found = argument in known if equals else hasattr(neocpu, argument.removeprefix("neocpu."))
        assert found, name


#: Rooms beside the command line's own that only commands call.
ONLY_FOR_COMMANDS = {("plan", "text"), ("plan", "profiling")}


def test_every_option_in_a_message_is_known() -> None:
    """The errors are those that are raised outside the command line's own folders."""
    missing = set()
    for top in ("neocpu", "foundation", "schedules", "search", "tuning_db"):
        for path in (ROOT / top).rglob("*.py"):
            if path.relative_to(ROOT).parts[1:3] in ONLY_FOR_COMMANDS:
                continue
            if {"cli", "bench"} & set(path.relative_to(ROOT).parts[1:2]):
                continue
            for raised in ast.walk(ast.parse(path.read_text())):
                if isinstance(raised, ast.Raise) and raised.exc is not None:
                    texts = [
                        node.value
                        for node in ast.walk(raised.exc)
                        if isinstance(node, ast.Constant) and isinstance(node.value, str)
                    ]
                    left = with_arguments("\0".join(texts))
                    left = re.sub(r"neocpu [a-z]+ --[a-z-]+|(?:python -m|git) .*", "", left)
                    missing |= {
                        (path.name, option)
                        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", left)
                        if option not in COMMANDS_ONLY
                    }
    assert not missing
