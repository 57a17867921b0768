-- Disable the server's time-outs for idle and long transactions, for this transaction only: a job's lock is a
-- transaction that waits for Spark, possibly for hours. Older servers do not know one of the two settings.
select set_config(name, '0', true)
from pg_settings
where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')
