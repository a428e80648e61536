"""The options of the commands."""
