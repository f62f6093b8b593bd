"""The report: its schema, the one converter, comparison, and one file per format. Imports no torch."""
