"""Turn a rewritten module into a file: lowering, code generation in child processes, linking."""
