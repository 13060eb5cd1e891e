"""Pages that show people what was decided: one file of HTML each, which loads nothing."""
