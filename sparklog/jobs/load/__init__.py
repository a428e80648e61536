"""The job ``load``: writes files of rows to logs."""
