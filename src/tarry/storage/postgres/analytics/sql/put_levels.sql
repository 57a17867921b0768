-- Replace the change in depth of queues on these days.
with given as materialized (
    select * from json_populate_recordset(null::tarry.queue_day, %(rows)s::json)
), gone as (
    delete from tarry.queue_day d
    where d.lake = %(lake)s and d.day = any (%(days)s::date[])
      and not exists (select from given g where (g.lake, g.day, g.queue_id) = (d.lake, d.day, d.queue_id))
)
insert into tarry.queue_day as d
select * from given
on conflict (lake, day, queue_id) do update set (net, dead_net) = (excluded.net, excluded.dead_net)
where (d.net, d.dead_net) <> (excluded.net, excluded.dead_net)
