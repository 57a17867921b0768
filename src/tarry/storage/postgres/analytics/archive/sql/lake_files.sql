-- Readable files of the newest batches. One statement, so that a compaction is seen either with its parts replaced or not
-- at all; the number of batches is limited, since each has a list of files.
select b.lake, f.path, f.day, f.queue_id, f.queue, f.rows, f.checksum, f.bytes
from (
    select lake, files from tarry.archive_batch where state in ('durable', 'pruned') order by position desc limit 2000
) b
cross join lateral jsonb_to_recordset(b.files)
    as f (path text, day date, queue_id int, queue text, rows bigint, checksum numeric, bytes bigint)
where (%(since)s::date is null or f.day >= %(since)s) and (%(until)s::date is null or f.day <= %(until)s)
  -- By id: a file has the name that the queue had when it was written.
  and (%(queue)s::text is null or f.queue_id = any (array(select id from tarry.queue where name = %(queue)s)))
order by f.day desc, f.queue, f.path limit %(limit)s::int
