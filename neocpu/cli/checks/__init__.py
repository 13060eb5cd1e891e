"""The checks of `neocpu doctor`."""
