"""Compiles and caches the loops over bytes (kernels), and contains them."""
