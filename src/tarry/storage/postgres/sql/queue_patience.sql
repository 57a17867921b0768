-- For this transaction only: rather give up than make every writer queue behind us.
select set_config('lock_timeout', '5s', true)
