"""The terminal: tables, errors and a line of progress."""
