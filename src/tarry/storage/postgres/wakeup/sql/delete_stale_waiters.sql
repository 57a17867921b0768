-- Delete the rows of processes that ended without leaving. No offer notifies them: their wake time has passed.
delete from tarry.waiter
where ctid = any (array(
    select ctid from tarry.waiter
    where greatest(wakes_at, renewed_at) < clock_timestamp() - interval '1 hour'
    for update skip locked))
