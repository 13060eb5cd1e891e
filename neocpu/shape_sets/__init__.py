"""Several shapes in one artifact: what is asked for, and one file made of a plan for each."""
