"""The core: values, rules and ports, without I/O and without a clock."""
