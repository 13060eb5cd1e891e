"""``neocpu reduce``: the smallest part of a model that still fails."""

from __future__ import annotations

from neocpu.cli.reduce.reduce_command import command

__all__ = ["command"]
