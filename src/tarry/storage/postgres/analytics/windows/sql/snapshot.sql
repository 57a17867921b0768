-- The current snapshot, for readers that do not continue from it.
select pg_current_snapshot()::text
