"""The objects that user code works with: queues and deliveries, blocking and async, over any store."""
