"""What `neocpu doctor` looks at."""
