"""Relax passes, one per file. `neocpu.graph.simplify` runs the target-independent ones."""
