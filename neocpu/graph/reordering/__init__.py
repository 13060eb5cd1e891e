"""Rules that change the order of operators so that less is computed."""
