"""Does what commands say, and makes rows of what came of it."""
