"""Multiply-add instructions as data, and their results bit by bit."""
