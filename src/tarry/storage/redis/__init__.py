"""The store on Redis and Redis Cluster: one script per verb, all keys of a queue in one slot, the server's clock.

The scripts of a subject lie in its folder `lua`, the shared parts in `lua/_*.lua`; each begins with why it is right."""
