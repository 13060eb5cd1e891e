"""What a compilation promises of outputs, and how plans come to keep it."""
