"""Plans as several commands print them."""
