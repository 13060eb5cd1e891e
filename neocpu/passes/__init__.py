"""Relax passes, one per file. `neocpu.passes.simplify_relax` runs the target-independent ones."""
