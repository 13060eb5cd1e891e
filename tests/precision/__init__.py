"""The scores of quantised networks with real weights in several engines; see `__main__`."""
