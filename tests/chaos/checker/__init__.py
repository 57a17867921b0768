"""Checks of a recorded history against the promises S1–S18. Imports nothing of the code under test."""
