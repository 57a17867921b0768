-- Mark a write as aborted, unless another driver has committed it.
update tarry.sink_write set state = 'aborted' where write_id = %(write_id)s and state <> 'committed'
