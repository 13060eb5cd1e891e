"""neocpu/cli."""
