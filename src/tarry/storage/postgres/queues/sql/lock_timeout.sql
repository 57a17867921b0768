-- Limit the lock wait of this transaction: every writer waits behind it.
select set_config('lock_timeout', '5s', true)
