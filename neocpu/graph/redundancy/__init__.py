"""Rules that remove operators without an effect, or with one that others undo."""
