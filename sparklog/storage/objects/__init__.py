"""Object stores as storages: S3, Google Cloud Storage, Azure, WebDAV servers, and memory."""
