"""The commands and snippets of docs/deploy.md run, or there is a reason not to run them here."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import needs
import numpy as np
import onnx
import pytest
import stand_ins
from document_blocks import Block, blocks, commands, run_as_reader, spans
from PIL import Image
from server_process import ServerProcess, free_ports
from v2_requests import Connection

import neocpu

DOCUMENT = "docs/deploy.md"

#: The beginnings of lines that are not run here, with the reason.
ELSEWHERE = {
    "make runtime-wheel": "it writes into the checkout; tests/neocpu/test_runtime_wheel.py does it",
    "pip install": "it downloads; tests/neocpu/test_runtime_wheel.py installs the wheel",
    "apt-get install": "it downloads, and root alone may",
    "docker ": "it needs Docker; tests/neocpu/test_deployment.py runs what the image runs",
    "scp ": "it needs a Raspberry Pi",
    "ssh ": "it needs a Raspberry Pi",
    "python3 -m venv env": "it is for the Raspberry Pi",
    "env/bin/python": "it is for the Raspberry Pi",
    "make CC=aarch64": "`make test-arm` does, with Debian's compiler",
    "neocpu bench": "it measures for minutes; tests/neocpu/bench has each view",
    "neocpu run | inspect": "it is four commands, which the extra brings",
}
#: Snippets, by what is in them.
SNIPPETS_ELSEWHERE = {
    "import ray": "it needs a cluster of 32 CPUs; tests/neocpu/test_ray_batch.py runs the example"
}
#: The placeholders in lines for names of the reader's.
NAMES = {
    "compile resnet50 ": "compile resnet50.onnx ",
    "compile mobilenet_v2 ": "compile mobilenet.onnx ",
    " FILE": " resnet50.so",
}
#: A `numactl` for machines of one node, and a `curl` that fails if a server refuses.
FUNCTIONS = """
numactl() { shift 2; exec "$@"; }  # on the only node
curl() { command curl -sS --fail-with-body "$@"; }
trap 'kill $(jobs -p) 2> errors || true; wait || true' EXIT
"""

SHELL = [block for block in blocks(DOCUMENT) if not block.language]
PYTHON = [block for block in blocks(DOCUMENT) if block.language == "python"]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files under the names that the document uses."""
    folder = tmp_path_factory.mktemp("deployed")
    model = stand_ins.pointwise([1, 3, 224, 224])
    onnx.save(model, folder / "resnet50.onnx")
    onnx.save(model, folder / "mobilenet.onnx")
    neocpu.compile(model).export(folder / "resnet50.so")
    names = ("detector", "classifier", "mobilenet", "model", "old", "new")
    neocpu.compile(stand_ins.detector()).export(folder / "boxes.so")
    for name in names:
        shutil.copy(folder / "resnet50.so", folder / f"{name}.so")
    np.save(folder / "image.npy", _image())
    for name in ("cat.png", "cat.jpg"):
        Image.new("RGB", (320, 200), (200, 100, 50)).save(folder / name)
    return folder


@pytest.fixture
def folder(artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder with these artifacts, which is the current one."""
    place = tmp_path / "deploy"
    shutil.copytree(artifacts, place)
    monkeypatch.chdir(place)
    return place


def _image() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype("float32")


def _lines(block: Block) -> Iterator[str]:
    """Yield what a reader types, without comments."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if bare := re.sub(r"\s+#.*", "", line).strip():
            yield bare


def _why_elsewhere(line: str) -> str | None:
    return next((why for start, why in ELSEWHERE.items() if line.startswith(start)), None)


def _script(lines: list[str]) -> str:
    """Return a script that, like a reader, goes on when a server says that it is ready."""
    text = "\n".join(lines)
    for name, stand_in in NAMES.items():
        text = text.replace(name, stand_in)
    ports = sorted(set(re.findall(r"(?:--port |127\.0\.0\.1:)(\d+)", text)))
    for port, free in zip(ports, free_ports(len(ports)), strict=True):
        text = text.replace(port, str(free))
    script = [FUNCTIONS]
    for number, line in enumerate(text.splitlines()):
        if "neocpu serve" not in line:
            script.append(line)
            continue
        (port,) = re.findall(r"--port (\d+)", line)
        ready = f"http://127.0.0.1:{port}/v2/health/ready"
        script.append(f"{line.removesuffix('&')} > serve.{number}.log 2>&1 &")
        script.append(f"curl -o ready --retry 100 --retry-delay 1 --retry-connrefused {ready}")
    return "\n".join(script)


def _run(lines: list[str], folder: Path) -> str:
    if any("aarch64" in line for line in lines):
        needs.skip(needs.linker("aarch64"))
    if any("avx2" in line for line in lines):
        needs.skip(needs.linker("x86_64"))
    for program, users in (("curl", ("curl", "neocpu serve")), ("make", ("make ",))):
        if any(user in line for user in users for line in lines):
            needs.program(program)
    done = run_as_reader(_script(lines), folder, {"HOME": str(folder)}, inherited={})
    logs = "\n".join(path.read_text() for path in folder.glob("serve.*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    assert "Traceback" not in done.stderr + logs
    return done.stdout + logs


def _asked(block: Block) -> list[str]:
    """Return the lines of a block that are run here."""
    return [line for line in _lines(block) if _why_elsewhere(line) is None]


@pytest.mark.parametrize("block", [each for each in SHELL if _asked(each)], ids=str)
def test_the_commands_of_a_block_succeed(block: Block, folder: Path) -> None:
    said = _run(_asked(block), folder)
    if "cat.png" in block.text:
        assert '"model_name":"mobilenet"' in said
    if "kill -HUP" in block.text:
        assert "version 1 was loaded anew" in said


@pytest.mark.parametrize(
    "command", [c for c in commands(DOCUMENT) if _why_elsewhere(c.text) is None], ids=str
)
def test_a_command_in_a_sentence_succeeds(command: Block, folder: Path) -> None:
    (line,) = _lines(command)
    if line.startswith("neocpu serve"):
        line = f"{line} --port 8080"
    elif line.endswith("--goal throughput"):
        line = f"{line} -o throughput.so"
    _run([f"{line} "], folder)


def test_every_skipped_block_has_a_reason_that_holds() -> None:
    """Every block is run or named above, and whatever is named is there."""
    assert {block.language for block in blocks(DOCUMENT)} == {"", "python", "json"}
    lines = [line for block in SHELL for line in _lines(block)]
    lines += [span.text for span in spans(DOCUMENT)]
    unused = [start for start in ELSEWHERE if not any(line.startswith(start) for line in lines)]
    assert unused == []
    for text in SNIPPETS_ELSEWHERE:
        assert any(text in block.text for block in PYTHON)


def test_the_snippets_run_one_after_the_other(folder: Path) -> None:
    """They run in the document's order, with the pictures that a reader would have."""
    names: dict[str, object] = {
        "asyncio": asyncio,
        "image": _image(),
        "images": [_image()] * 3,
        "size": np.array([224, 224], np.float32),
        "detector": neocpu.load("boxes.so"),
    }
    for block in PYTHON:
        if any(text in block.text for text in SNIPPETS_ELSEWHERE):
            continue
        exec(_compiled(block), names)
        if "__coroutine" in names:
            asyncio.run(names.pop("__coroutine")())  # type: ignore[operator]
    expected = names["model"](names["image"])  # type: ignore[operator]
    assert all((f.result() == expected).all() for f in names["futures"])  # type: ignore[attr-defined]
    for value in names.values():
        if isinstance(value, neocpu.Module):
            value.close()


def _compiled(block: Block) -> object:
    """Return a snippet's code; one that awaits becomes a coroutine's."""
    text = block.text
    if "await " in text:
        inner = "\n".join(f"    {line}" for line in text.splitlines())
        text = f"async def __coroutine():\n{inner}"
    return compile(text, str(block), "exec")


def test_expressions_in_sentences_have_a_value(folder: Path) -> None:
    """Calls on a module and of the package, with the names that the sentences give."""
    model = neocpu.load("resnet50.so", 1)
    x = _image()
    names = {
        "neocpu": neocpu,
        "logging": logging,
        "model": model,
        "x": x,
        "y": np.empty_like(np.asarray(model(x))),
        "shape": x.shape,
        "dtype": "float32",
        "path": "resnet50.so",
        "CPUs": 4,
        "W": 2,
    }
    level, found = logging.getLogger("neocpu").level, 0
    for span in spans(DOCUMENT):
        if re.match(r"(model|neocpu|print|logging)\b[\w.]*\(.*\)$", span.text) and _is_call(span):
            made = eval(span.text, names)
            found += 1
            if hasattr(made, "close"):
                made.close()
    logging.getLogger("neocpu").setLevel(level)
    model.close()
    assert found >= 8
    assert (folder / "timeline.json").exists()


def _is_call(span: Block) -> bool:
    try:
        ast.parse(span.text, mode="eval")
    except SyntaxError:
        return False
    return "…" not in span.text and "Predictor" not in span.text


def test_every_path_of_the_table_is_answered(folder: Path) -> None:
    paths, root = [], ""
    for span in spans(DOCUMENT):
        if span.text.startswith(("/v2/", "/metrics")):
            root = span.text
            paths.append(root)
        elif span.text.startswith("…/") and root:
            paths.append(f"{root.removesuffix('/load')}{span.text[1:]}")
    paths = [path.replace("NAME", "resnet50").replace("/N/…", "/1/ready") for path in paths]
    assert len(set(paths)) >= 9
    with (
        ServerProcess("resnet50.so", "--model-control") as server,
        Connection(server.address) as raw,
    ):
        for path in dict.fromkeys(paths):
            posted = path.endswith("/infer") or path.startswith("/v2/repository")
            answer = raw.post(path, b"") if posted else raw.get(path)
            # There is no request to infer from; all other commands succeed.
            assert answer.status == (400 if path.endswith("/infer") else 200), path


def test_the_error_reads_as_it_is_shown(folder: Path) -> None:
    (block,) = (each for each in blocks(DOCUMENT) if each.language == "json")
    command = [sys.executable, "-m", "neocpu", "run", "resnet50.so", "--input", "x.npy", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    shown = json.loads(block.text)
    assert json.loads(done.stdout) == shown
    assert done.returncode == shown["error"]["exit_code"]
