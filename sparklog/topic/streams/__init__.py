"""The offsets of a stream, and how they know their logs."""
