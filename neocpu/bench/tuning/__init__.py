"""The strategies of tuning against each other."""
