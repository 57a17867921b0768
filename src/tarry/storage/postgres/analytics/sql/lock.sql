-- Try to take a job's advisory lock for the duration of this transaction. The transaction holds no snapshot between its
-- statements, so it does not delay vacuum, and it ends with its process. Transitions that must not happen twice are
-- also fenced by states.
select pg_try_advisory_xact_lock(hashtextextended('tarry.pipeline ' || %(name)s::text, 0))
