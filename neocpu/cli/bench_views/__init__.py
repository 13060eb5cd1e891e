"""What ``neocpu bench`` can measure, a subcommand in each file."""
