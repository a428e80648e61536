"""Compiled code: the loops over bytes, and what compiles and keeps them."""
