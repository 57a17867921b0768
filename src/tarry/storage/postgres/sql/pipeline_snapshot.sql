-- What is committed now, for readers who do not come back.
select pg_current_snapshot()::text
