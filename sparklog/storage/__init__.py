"""Where bytes are: files and folders; no meaning."""
