"""The store on Redis and Redis Cluster: one script per verb, all keys of a queue in one slot, the server's clock."""
