-- Queues, for readers of the journal: without a journal the state of a queue cannot be derived.
select id, name, journal::text as journal from tarry.queue
