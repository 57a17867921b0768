-- Try to be the only one at something for as long as this transaction is open. It has no snapshot between its statements,
-- so it holds up no vacuum, and it ends with its process. What must not happen twice is fenced by states as well.
select pg_try_advisory_xact_lock(hashtextextended('tarry.pipeline ' || %(name)s::text, 0))
