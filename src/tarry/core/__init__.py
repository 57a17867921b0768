"""What Tarry means, without I/O: values, rules and ports. Nothing here opens a socket or asks what time it is."""
