-- Plan to rewrite these batches as one. It takes the place of the last of them.
insert into tarry.archive_batch (batch, lake, kind, place, system_id, from_edge, to_edge, run)
select nextval('tarry.archive_batch_seq'), %(lake)s, 'compaction', %(place)s, %(system_id)s, %(from_edge)s, %(to_edge)s,
    %(run)s
returning batch, lake, kind, place, from_edge, to_edge, system_id, state, files, rows, checksum, min_at, max_at, run
