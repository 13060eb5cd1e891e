"""docs/deploy.md and the examples for Docker and Kubernetes are right."""

import ast
import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from neocpu.cli.main import cli
from neocpu.cli.serve import command as serve
from neocpu.foundation import errors
from neocpu.schedules.vocabulary.target_parsing import parse_target
from wheels import runtime

ROOT = Path(__file__).parents[2]
DEPLOY = (ROOT / "docs" / "deploy.md").read_text()
DOCKERFILE = (ROOT / "examples" / "docker" / "Dockerfile").read_text()
KUBERNETES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
FROM_THE_CASE = r"float32\S+|avx512f|aarch64|x86_64|,? got|x\.npy'"
"""The texts that stand for fields of messages in the document."""


def instruction(name: str) -> str:
    """Return what follows the last ``name`` of the Dockerfile, its lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.lstrip().startswith(name)][-1].split(
        maxsplit=1
    )[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def parsed(arguments: list[str]) -> click.Context:
    return serve.make_context("serve", list(arguments))


class TestDocker:
    @pytest.fixture
    def served(self, linear) -> Iterator[tuple[list[str], subprocess.Popen[str]]]:
        """Run the image's entry point on a free port, and yield its health check."""
        port = str(free_port())
        _, *entry = json.loads(instruction("ENTRYPOINT"))
        arguments = [
            {"8080": port, "0.0.0.0": "127.0.0.1", "/models/model.so": str(linear.path)}.get(a, a)
            for a in json.loads(instruction("CMD"))
        ]
        check = json.loads(instruction("HEALTHCHECK").partition("CMD")[2])
        assert check[0] == "python"
        check = [sys.executable, *(word.replace(":8080", f":{port}") for word in check[1:])]
        with subprocess.Popen(
            [sys.executable, "-m", "neocpu", *entry, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            yield check, process
            process.kill()

    def test_the_health_check_distinguishes_a_ready_server_from_none(self, served) -> None:
        check, process = served
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving linear on http://127.0.0.1:")
        assert subprocess.run(check, capture_output=True).returncode == 0
        process.terminate()
        _, complaints = process.communicate(timeout=60)
        assert (process.returncode, complaints) == (0, "")
        assert subprocess.run(check, capture_output=True).returncode != 0

    def test_listens_where_the_container_is_reached(self) -> None:
        options = parsed(json.loads(instruction("CMD"))).params
        assert options["host"] == "0.0.0.0"
        assert str(options["port"]) == instruction("EXPOSE")

    def test_docker_stop_names_the_container_and_outlasts_the_drain(self) -> None:
        (name,) = re.findall(r"^docker run .*--name (\S+)", DEPLOY, re.MULTILINE)
        (seconds, stopped) = re.findall(r"^docker stop -t (\d+) (\S+)", DEPLOY, re.MULTILINE)[0]
        assert stopped == name
        assert int(seconds) > parsed(json.loads(instruction("CMD"))).params["drain_seconds"]

    def test_the_image_runs_as_nobody_and_without_a_compiler(self) -> None:
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instruction("USER"))
        assert instruction("STOPSIGNAL") == "SIGTERM"
        stages = DOCKERFILE.split("\nFROM ")[1:]
        assert "pip" not in re.sub(r"#.*", "", stages[-1])
        # The wheel itself is named: by its name alone pip would look for a newer one on PyPI.
        (extra,) = re.findall(r"_\$\(uname -m\)\.whl\)\[(\w+)\]", DOCKERFILE)
        assert extra in runtime.requirements()


def deployments() -> list[dict[str, Any]]:
    documents = [one for path in KUBERNETES for one in yaml.safe_load_all(path.read_text())]
    return [one for one in documents if one["kind"] == "Deployment"]


class TestKubernetes:
    def test_there_are_three_deployments_behind_one_service(self) -> None:
        documents = [one for path in KUBERNETES for one in yaml.safe_load_all(path.read_text())]
        (service,) = (one for one in documents if one["kind"] == "Service")
        assert len(deployments()) == 3
        for one in deployments():
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert service["spec"]["selector"].items() <= labels.items()
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()

    @pytest.mark.parametrize("deployment", deployments(), ids=lambda one: one["metadata"]["name"])
    def test_the_command_line_is_right(self, deployment) -> None:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        options = parsed(container["args"]).params
        assert options["host"] == "0.0.0.0"
        assert options["port"] == container["ports"][0]["containerPort"]
        assert container["resources"]["limits"]["cpu"].isdecimal()

    def test_there_is_time_to_drain(self) -> None:
        pod = deployments()[0]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        _, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
        drain = parsed(container["args"]).params["drain_seconds"]
        assert pod["terminationGracePeriodSeconds"] > int(seconds) + drain

    def test_probes_are_paths_of_the_protocol(self) -> None:
        (container,) = deployments()[0]["spec"]["template"]["spec"]["containers"]
        paths = {
            name: container[f"{name}Probe"]["httpGet"]["path"]
            for name in ("startup", "readiness", "liveness")
        }
        ready, live = "/v2/health/ready", "/v2/health/live"
        assert paths == {"startup": ready, "readiness": ready, "liveness": live}

    def test_artifacts_are_for_the_nodes_that_are_selected(self) -> None:
        text = (ROOT / "examples" / "kubernetes" / "one-per-isa.yaml").read_text()
        targets = [parse_target(words) for words in re.findall(r"--target (.*?) -o", text)]
        assert [target.isa for target in targets] == ["avx512", "avx2"]


def rows() -> list[list[str]]:
    table = DEPLOY.partition("## When something is refused")[2]
    lines = [line for line in table.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class TestDocument:
    def test_refusals_are_those_of_the_sources(self) -> None:
        texts = [
            _strings(path)
            for room in ("neocpu", "core", "foundation")
            for path in (ROOT / room).rglob("*.py")
        ]
        said = " ".join([*texts, *(path.read_text() for path in (ROOT / "core").rglob("*.c"))])
        known = [row for row in rows() if row[1].startswith("`")]
        assert len(known) > 12
        for number, exception, words, _ in known:
            assert int(number) == getattr(errors, exception.strip("`")).exit_code
            for message in re.findall(r"`([^`]*)`", words):
                constant = re.sub(FROM_THE_CASE, "", message).strip()
                assert constant in said, message

    def test_command_lines_parse(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "build" / "aarch64-libraries").mkdir(parents=True)
        lines = re.findall(r"^(?:\$ )?neocpu (.*)$", DEPLOY, re.MULTILINE)
        assert len(lines) > 4
        for line in lines:
            name, *arguments = shlex.split(line.partition("  #")[0].partition(" && ")[0])
            command = cli.get_command(click.Context(click.Command("neocpu")), name)
            assert command is not None
            if "--target" not in arguments:  # its folded form is the tokens' test
                command.make_context(name, arguments)

    def test_links_lead_somewhere(self) -> None:
        places = re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", DEPLOY)
        headings = re.findall(r"^#+ (.*)$", DEPLOY, re.MULTILINE)
        anchors = {
            re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
        }
        for path, anchor in places:
            if path:
                assert (ROOT / "docs" / path).exists(), path
            else:
                assert anchor in anchors


def _strings(path: Path) -> str:
    """Return the constant parts of a file's strings, joined as in messages."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "" for v in node.values)
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return " ".join(found)
