"""The verb ``load``: files of rows to logs."""
