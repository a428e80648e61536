"""What the bytes of keys and values mean: decoders that make typed Arrow arrays of them; no files of logs."""
