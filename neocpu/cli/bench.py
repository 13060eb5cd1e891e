"""``neocpu bench``: measurements of models and of compiled models."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import CompletionItem

from neocpu.cli.parsing.groups import LazyGroup
from neocpu.cli.parsing.model_arguments import ModelName

VIEWS: Final = {
    "race": "Latency of models, beside other engines. This is the default view.",
    "profile": "Time of every operator inside the running network, beside its limit.",
    "scaling": "Latency by number of threads: measured here, predicted for many cores.",
    "throughput": "Images a second and memory of simultaneous calls, beside other engines.",
    "served": "A server under load, beside direct calls.",
}

EPILOG: Final = """\b
Examples:
  neocpu bench resnet50 --vs onnxruntime,openvino,ncnn
  neocpu bench --suite paper --vs onnxruntime,openvino --roofline -o bench.md
  neocpu bench profile resnet50
  neocpu bench resnet50.so --model resnet50 --vs onnxruntime --cold-start
  neocpu bench served resnet50.so -o serving.md"""


class BenchGroup(LazyGroup):
    """The group of the views. A command line that begins with no view is a race."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``race`` in front of arguments that do not begin with a view."""
        if args and args[0] not in (*VIEWS, *self.get_help_option_names(ctx)):
            args = ["race", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return the views and options with this beginning, or else the models to race."""
        if found := super().shell_complete(ctx, incomplete):
            return found
        race = self.get_command(ctx, "race")
        assert race is not None
        return ModelName().shell_complete(ctx, race.params[0], incomplete)


command = BenchGroup(
    "bench",
    package="neocpu.cli.bench_views",
    lines=VIEWS,
    help="Measure models, beside other engines and the limits of the machine.\n\n"
    "neocpu bench MODEL --vs A,B is short for neocpu bench race MODEL --vs A,B.",
    epilog=EPILOG,
    subcommand_metavar="[VIEW] …",
)
