"""Many partitions: what a path means, which key goes where, and one commit over all of them."""
