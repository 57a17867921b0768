-- For this transaction only: fail rather than make every writer wait behind it.
select set_config('lock_timeout', '5s', true)
