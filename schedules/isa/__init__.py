"""The instructions that multiply and add: a file for each family, as data."""
