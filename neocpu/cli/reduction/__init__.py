"""The output of `neocpu reduce`."""
