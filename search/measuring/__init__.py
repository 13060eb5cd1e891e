"""Building and timing candidates, in child processes here or on the servers of a fleet."""
