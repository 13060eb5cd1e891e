"""Facts about CPUs and about this machine."""
