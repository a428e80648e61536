"""Declares, reads and checks the options of reads and writes."""
