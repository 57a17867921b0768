"""`make bench ARGS="--store redis"`: Tarry on Redis beside other queues on Redis."""
