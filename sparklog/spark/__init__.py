"""The Spark data source: its options, plans, readers and writers."""
