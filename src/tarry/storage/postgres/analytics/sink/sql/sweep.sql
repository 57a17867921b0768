-- Delete leftovers of dead tasks and drivers: attempts of finished writes, and old attempts that are not stored. Attempts locked
-- by a merge or a task are skipped; see `empty`. Only the last batch of a streaming query is kept: Spark can replay no other.
with left_behind as materialized (
    select a.id from tarry.sink_attempt a
    left join tarry.sink_write w on w.id = a.write
    where (a.part is null and a.started_at < clock_timestamp() - make_interval(secs => %(staged_for)s))
       or w.state = 'committed' or w.id is null
    for update of a skip locked
), gone as (
    delete from tarry.sink_attempt where id = any (array(select id from left_behind))
), given_up as (
    update tarry.sink_write set state = 'aborted'
    where state = 'staging' and started_at < clock_timestamp() - make_interval(secs => %(staged_for)s)
      and not exists (select from tarry.sink_attempt a where a.write = sink_write.id and a.part is null
                      and a.id <> all (array(select id from left_behind)))
), forgotten as (
    delete from tarry.sink_write w
    where w.stream is not null and w.committed_at < clock_timestamp() - make_interval(secs => %(staged_for)s)
      and exists (select from tarry.sink_write newer
                  where newer.stream = w.stream and newer.batch > w.batch and newer.state = 'committed')
)
select id from left_behind
