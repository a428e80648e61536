"""Archives of log directories as storages: tar, also compressed, and zip."""
