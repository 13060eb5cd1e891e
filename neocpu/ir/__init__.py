"""Relax as this compiler uses it: operators of its own, queries, and the rewriting walk."""
