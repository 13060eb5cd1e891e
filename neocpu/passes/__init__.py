"""Relax passes, one per file. `neocpu.passes.simplify` runs the target-independent ones."""
