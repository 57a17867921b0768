"""Detectors of what is out of the ordinary: pure functions of frames, gathered in one registry that users extend."""
