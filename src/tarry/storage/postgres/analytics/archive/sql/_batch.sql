-- The columns of a batch, in any statement that reads or returns one.
batch as number, lake, kind, position, from_edge, to_edge, system_id, state, files,
jsonb_build_object('rows', rows, 'checksum', checksum) as digest, min_at, max_at, run
