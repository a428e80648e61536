"""The mutation harness, and the kills: see `tests.fuzz.run` and `make fuzz`."""
