"""How quantised networks with real weights score, in several engines; see `__main__`."""
