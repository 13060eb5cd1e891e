"""The schedules of all other operators."""
