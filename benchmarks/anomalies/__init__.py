"""How good the detectors are: faults are injected where we know it, and counted where they are found."""
