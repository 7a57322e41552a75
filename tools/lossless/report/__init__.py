"""Read-only views of verdicts: the terminal, and JSON evidence."""
