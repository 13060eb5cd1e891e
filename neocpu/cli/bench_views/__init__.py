"""The views of ``neocpu bench``, a subcommand in each file."""
