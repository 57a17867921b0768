-- A job's lock is a transaction that waits for Spark, for hours if need be: the server's time-outs for idle and for long
-- transactions are meant for others. For this transaction only; one of the two is unknown to older servers.
select set_config(name, '0', true)
from pg_settings
where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')
