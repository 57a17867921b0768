"""Anomaly detectors: pure functions of frames, collected in a registry that users extend."""
