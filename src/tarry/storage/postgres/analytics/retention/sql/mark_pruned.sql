-- Mark batches that the journal has no rows of any more.
update tarry.archive_batch b set state = 'pruned'
where b.state = 'durable' and not exists (
    select from tarry.archive_day d where d.lake = b.lake and d.day = any (b.days) and d.rows > d.pruned_rows)
