-- A batch without the files that retention takes.
update tarry.archive_batch
set files = %(files)s, rows = %(rows)s, checksum = %(checksum)s
where batch = %(batch)s and state in ('durable', 'pruned')
returning batch
