"""Plans as people read them: reports, pages, and comparisons of two."""
