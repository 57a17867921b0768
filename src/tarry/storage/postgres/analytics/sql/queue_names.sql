-- Queue names, including those of deleted queues, whose events are in the archive. `former`: their names in older archives.
select id as queue_id, name, former_names as former from tarry.queue
