-- Complete the planned round of a lake: it takes the place of the one before. Returns no row if another run has completed it.
with done as (
    update tarry.lake_round set is_done = true, done_at = clock_timestamp()
    where lake = %(lake)s and number = %(number)s and not is_done
    returning number
), gone as (
    delete from tarry.lake_round r using done where r.lake = %(lake)s and r.number <> done.number
), level as (
    insert into tarry.queue_level as l (lake, queue_id, depth, dead)
    select %(lake)s, u.queue_id, u.depth, u.dead
    from done cross join unnest(%(queue_ids)s::int[], %(depths)s::bigint[], %(deads)s::bigint[]) as u(queue_id, depth, dead)
    on conflict (lake, queue_id) do update set (depth, dead) = (excluded.depth, excluded.dead)
)
select number from done
