"""Rules that rewrite graphs, a small file each, by what they are for; `table` lists them all."""
