"""Declares the commands with their arguments, options and help."""
