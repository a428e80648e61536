"""Turns batches into Arrow columns, with or without a filter."""
