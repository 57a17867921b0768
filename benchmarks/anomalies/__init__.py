"""The accuracy of the detectors: injected faults compared with detected anomalies."""
