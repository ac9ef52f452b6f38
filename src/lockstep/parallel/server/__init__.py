"""Parameter servers: strategy, client, shards and the processes that serve them."""
