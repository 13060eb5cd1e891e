"""``neocpu serve``: serve artifacts by the Open Inference Protocol v2."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neocpu.cli import options
from neocpu.foundation.console.terminal import Terminal, echo
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import plural

if TYPE_CHECKING:
    from neocpu.runtime.thread_pool import Threads
    from neocpu.serving.server import InferenceServer

EPILOG = """\b
Examples:
  neocpu serve resnet50.so
  neocpu serve resnet50.so --name resnet50 --host 0.0.0.0 --port 8080
  neocpu serve batches.so --max-batch 16 --max-delay 2ms
  neocpu serve old.so new.so --name net:1 --name net:2 --instances 2
  neocpu serve net.so --model-control
  curl http://127.0.0.1:8080/v2/models/resnet50

The server speaks the Open Inference Protocol v2: JSON and binary tensor data,
health under /v2/health, Prometheus metrics under /metrics. On SIGTERM and
Ctrl-C it answers accepted requests, refuses others with 503, and ends. On
SIGHUP it reloads files that were replaced (mv new.so net.so), and loses no
request."""


@click.command(epilog=EPILOG)
@click.argument("artifacts", metavar="OUT.so…", type=options.PATH, nargs=-1)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME[:VERSION]",
    help="The name of a model, by default that of its file; given once for each file, in order.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="The address to listen on; 0.0.0.0 stands for all addresses of the machine.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    metavar="N",
    help="The port to listen on; 0 chooses a free one.",
)
@click.option(
    "--threads",
    type=options.THREADS,
    metavar="N|performance",
    help="Number of threads of each call; by default the CPUs this process may use, divided by "
    "--instances. performance takes those of performance cores, for one instance.",
)
@options.count(
    "--instances",
    default=1,
    help="The number of calls that may run at the same time, over all models.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=0),
    default=64,
    metavar="N",
    help="The number of requests of a model that may wait; more are refused with 429.",
)
@options.count(
    "--max-batch",
    help="Compute several requests in one call, with at most N rows along the first axis, if the "
    "artifact is compiled for more than one row. Each request may then have from 1 to N rows.",
)
@click.option(
    "--max-delay",
    type=options.DURATION,
    help="The longest time that a request waits for others while nothing is computed: 2ms by "
    "default, at most 10s.",
)
@click.option(
    "--max-request-bytes",
    type=options.SIZE,
    help="The size of the largest request, by default the most that a model's inputs can take as "
    "JSON; larger requests are refused with 413 before they are read.",
)
@click.option(
    "--max-bytes-in-flight",
    type=options.SIZE,
    help="The most bytes that requests in progress and unread answers may take, by default a "
    "quarter of the memory; further requests are refused with 429.",
)
@click.option(
    "--model-control",
    is_flag=True,
    help="Let clients load and unload models, by the protocol's repository extension; without "
    "this, only SIGHUP loads the files again.",
)
@click.option(
    "--drain-seconds",
    type=options.DURATION,
    default="30s",
    help="How long a shutdown waits for accepted requests to finish.",
)
@options.common
def command(
    terminal: Terminal,
    artifacts: tuple[Path, ...],
    names: tuple[str, ...],
    host: str,
    port: int,
    threads: Threads,
    instances: int,
    queue: int,
    max_batch: int | None,
    max_delay: float | None,
    max_request_bytes: int | None,
    max_bytes_in_flight: int | None,
    model_control: bool,
    drain_seconds: float,
) -> int:
    """Serve compiled models, OUT.so, over HTTP.

    All models are loaded, checked and warmed up before the first request is accepted; then one
    line prints their addresses. The server needs neocpu[serve], and neocpu[images] for pictures.
    """
    from neocpu.serving.repository import entries

    models = entries(artifacts, names)
    if max_delay is not None and max_batch is None:
        raise UsageError("--max-delay says how long --max-batch waits: give both")
    if threads == "performance" and instances > 1:
        raise UsageError("--threads performance is for one instance: give a number for several")
    _check_installed()
    from neocpu.serving.batches.batching import DELAY, Batching, check_delay
    from neocpu.serving.http_server import bind, serve, url
    from neocpu.serving.server import InferenceServer, Limits

    delay = DELAY if max_delay is None else check_delay(max_delay, "--max-delay")
    limits = Limits(
        instances=instances,
        threads=threads,
        queue=queue,
        max_request_bytes=max_request_bytes,
        max_bytes_in_flight=max_bytes_in_flight,
        batching=Batching(max_batch, delay) if max_batch else None,
        model_control=model_control,
    )
    server = InferenceServer(models, limits)
    terminal.kept = lambda: "every accepted request was answered"
    with bind(host, port) as bound:
        server.start()
        _note_single_rows(terminal, server, max_batch or 1)
        document = {
            "url": url(bound),
            "models": [{"name": m.name, "version": m.version, "path": str(m.path)} for m in models],
            "instances": limits.instances,
            "threads": limits.threads_per_instance,
        }
        announce = partial(_announce, terminal, document)
        ended = serve(server, bound, drain_seconds, announce, terminal.note)
    if ended.unanswered:
        terminal.note(f"{plural(ended.unanswered, 'request')} cut off after {drain_seconds:g} s")
        terminal.kept = lambda: "not every accepted request was answered"
    if ended.signal == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def _check_installed() -> None:
    try:
        import fastapi
        import httptools
        import orjson
        import prometheus_client
        import uvicorn
    except ImportError as error:
        raise UsageError(
            f"{error.name} is not installed: pip install 'neocpu[serve]' or 'neocpu-runtime[serve]'"
        ) from error
    del fastapi, httptools, orjson, prometheus_client, uvicorn


def _note_single_rows(terminal: Terminal, server: InferenceServer, most: int) -> None:
    for model in server.models.all():
        if most > 1 and model.joint_rows == 1:
            terminal.note(
                f"--max-batch {most}: requests for {model.entry.path} are computed one by one, "
                "because it is compiled for one row; compile it with --batch or for several batches"
            )


def _announce(terminal: Terminal, document: Mapping[str, Any]) -> None:
    names = ", ".join(dict.fromkeys(model["name"] for model in document["models"]))
    terminal.result(document, lambda: echo(f"serving {names} on {document['url']}"))
    sys.stdout.flush()  # a process that waits for the line may read a pipe
