"""neocpu/bench."""
