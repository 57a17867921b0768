-- Write down how a run ended, and still on which lake, unless somebody has declared it lost meanwhile. Runs of the job that ended 30 days ago are
-- forgotten, the oldest first, so many at a time that they do not become more; never the last one that came through, for
-- the next goes on from it. Relies on pipeline_run_job.
with ended as (
    update tarry.pipeline_run
    set state = %(state)s, summary = (summary - 'alone_at') || %(summary)s, error = %(error)s, ended_at = clock_timestamp()
    where id = %(id)s and state = 'running'
    returning job
), oldest as (
    select id, ended_at from tarry.pipeline_run where job = (select job from ended) order by id limit 100
), last_done as (
    select id from tarry.pipeline_run
    where job = (select job from ended) and state = 'done'
    order by id desc
    limit 1
)
delete from tarry.pipeline_run
where id in (
    select id from oldest
    where ended_at < clock_timestamp() - interval '30 days' and id < (select id from last_done))
