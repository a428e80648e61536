"""Carries out the commands, and makes rows of their results."""
