-- The names of queues, also of deleted ones: the archive has their events. `former`: what an older archive calls them.
select id as queue_id, name, former_names as former from tarry.queue
