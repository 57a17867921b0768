-- Mark batches whose rows are no longer in the journal.
update tarry.archive_batch b set state = 'pruned'
where b.state = 'durable' and not exists (
    select from tarry.archive_day d where d.lake = b.lake and d.day = any (b.days) and d.rows > d.pruned_rows)
