"""The plan of a compiled model: what the compiler decided, as artifacts store it."""
