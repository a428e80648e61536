"""What a log holds, and what is wrong with it: describe, verify, dump."""
