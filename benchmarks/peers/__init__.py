"""`make bench-peers`: Tarry beside other queues, each through its own public API, in turns on one server."""
