"""Analytic estimates of the time that registers, loads, caches and memory take."""
