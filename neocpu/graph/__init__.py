"""Rules that rewrite graphs, in small files sorted by purpose; `table` lists all of them."""
