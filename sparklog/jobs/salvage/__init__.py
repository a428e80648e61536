"""The job ``salvage``: makes clean logs from damaged ones."""
