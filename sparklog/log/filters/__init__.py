"""The parts of a log that a reader asks for: the language of filters, and offsets found by filters and times."""
