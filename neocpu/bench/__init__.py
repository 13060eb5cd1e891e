"""What ``neocpu bench`` measures: a room for each view, and those they share."""
