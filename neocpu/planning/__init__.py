"""From a Relax function to a layout problem, and from its solution to a plan (paper §3.2, §3.3)."""
