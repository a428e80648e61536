"""Compresses and decompresses: gzip, snappy, lz4 and zstd."""
