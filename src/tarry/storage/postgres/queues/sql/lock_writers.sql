-- Block all writers of messages until this transaction ends: the next offer then finds the queue deleted. Rare and short;
-- `queues/lock_timeout` bounds the wait for a long transaction.
lock table tarry.message in share row exclusive mode
