"""``neocpu reduce``: the smallest part of a model that still fails."""

from neocpu.cli.reduction.reduce_command import command

__all__ = ["command"]
