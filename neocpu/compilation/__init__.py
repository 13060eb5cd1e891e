"""Compilations for several CPUs, shapes and accuracies, each through `neocpu.pipeline`."""
