-- Batches whose files are kept, by number: a day has hundreds that were replaced and deleted, which every run would list.
select batch as number from tarry.archive_batch
where lake = %(lake)s and state <> 'abandoned' and cleared_at is null
