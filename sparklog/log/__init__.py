"""One partition, read only: its files, indexes, segments, producers, and its reader."""
