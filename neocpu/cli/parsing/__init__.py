"""How command lines are parsed: groups of commands, models, targets of several words."""
