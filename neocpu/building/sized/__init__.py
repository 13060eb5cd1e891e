"""One program for any size: how it is merged, placed in memory, and built."""
