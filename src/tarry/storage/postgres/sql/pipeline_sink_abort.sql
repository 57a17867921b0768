-- This write did not happen. One that was committed, by another driver, did.
update tarry.sink_write set state = 'aborted' where write_id = %(write_id)s and state <> 'committed'
