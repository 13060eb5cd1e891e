"""Pages that show people the decisions: each is one file of HTML, which loads nothing."""
