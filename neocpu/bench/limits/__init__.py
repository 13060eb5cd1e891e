"""Measured limits of the machine."""
