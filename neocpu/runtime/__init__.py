"""Open a compiled artifact and run it, without the compiler."""
