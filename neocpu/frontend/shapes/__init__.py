"""Shapes of inputs: requested, inferred, missing, and those that no kernel can compute."""
