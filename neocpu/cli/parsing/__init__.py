"""The parsing of command lines: groups of commands, models, targets of several words."""
