"""Works on many partitions: finds them at paths, routes keys to them, and commits to all of them at once."""
