"""What all views have in common: statistics, tables, charts, documents, failures."""
