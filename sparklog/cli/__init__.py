"""The commands for a person at a terminal."""
