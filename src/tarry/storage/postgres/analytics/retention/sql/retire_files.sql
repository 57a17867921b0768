-- Remove files from a batch by retention.
update tarry.archive_batch
set files = %(files)s, rows = %(rows)s, checksum = %(checksum)s
where batch = %(batch)s and state in ('durable', 'pruned')
returning batch
