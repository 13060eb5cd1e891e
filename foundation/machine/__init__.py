"""Facts about CPUs and about the machine that this is."""
