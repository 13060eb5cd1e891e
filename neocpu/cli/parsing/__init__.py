"""How command lines are parsed: groups of commands, and targets of several words."""
