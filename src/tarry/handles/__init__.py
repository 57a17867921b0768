"""What user code holds: queues and deliveries, blocking and awaitable, over any store."""
