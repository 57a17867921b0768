-- Plan to rewrite these batches as one. It takes the position of the last of them.
insert into tarry.archive_batch (batch, lake, kind, position, system_id, from_edge, to_edge, run)
select nextval('tarry.archive_batch_seq'), %(lake)s, 'compaction', %(position)s, %(system_id)s, %(from_edge)s, %(to_edge)s,
    %(run)s
returning
-- include: analytics/archive/_batch
