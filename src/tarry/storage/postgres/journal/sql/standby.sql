-- Whether this server is a standby, and of which primary, if this role may see it. On a standby pg_current_snapshot() does not
-- list running transactions, so a window of the journal that ends there would miss late commits.
select pg_is_in_recovery() as is_standby, (select sender_host || coalesce(':' || sender_port, '') from pg_stat_wal_receiver limit 1) as primary
