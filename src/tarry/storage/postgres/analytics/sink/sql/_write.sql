-- The columns of a write, in any statement that reads or returns one.
id, write_id, state, rows, created, updated, ignored, superseded, committed_at
