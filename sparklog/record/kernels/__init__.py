"""Contains the loops over bytes (kernels), and compiles and caches them."""
