-- Keep every writer of messages out until this transaction ends: whoever offers next sees that the queue is gone. Rare
-- and short; `queue_patience` before it bounds the wait behind somebody's long transaction.
lock table tarry.message in share row exclusive mode
