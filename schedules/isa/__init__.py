"""Multiply-add instructions as data: one file for each family."""
