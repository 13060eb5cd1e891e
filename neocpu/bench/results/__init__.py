"""The common parts of all views: statistics, tables, charts, documents, failures."""
