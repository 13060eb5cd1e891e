"""What the machine allows, measured."""
