"""Turn a Relax function into a layout problem, and its solution into a plan (paper §3.2, §3.3)."""
