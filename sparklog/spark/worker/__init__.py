"""Prepares the Python workers of Spark, and shortens their errors."""
