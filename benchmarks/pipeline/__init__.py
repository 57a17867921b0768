"""The data pipeline, measured: its source, its sink, and a million messages from the journal to `verify`."""
