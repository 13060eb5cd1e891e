"""Rules that remove operators without an effect, or whose effect others undo."""
