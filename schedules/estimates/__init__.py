"""What analytic estimates assume of registers, loads, caches and memory."""
