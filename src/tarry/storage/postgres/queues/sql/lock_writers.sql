-- Block every writer of messages until this transaction ends: the next offer sees that the queue is gone. Rare and short;
-- `queues/lock_timeout` before it bounds the wait for a long transaction.
lock table tarry.message in share row exclusive mode
