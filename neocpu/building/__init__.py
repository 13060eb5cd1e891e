"""From the rewritten module to a file: lowering, code generation in children, linking."""
