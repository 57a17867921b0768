-- Record the end of a run and keep its lake, unless it was declared lost meanwhile. Runs of the job that ended more
-- than 30 days ago are deleted, oldest first, at most 100 at a time, so that their number stays bounded; never the last
-- successful one, because the next run continues from it. Uses the index pipeline_run_job.
with ended as (
    update tarry.pipeline_run
    set state = %(state)s, summary = (summary - 'lock') || %(summary)s, error = %(error)s, ended_at = clock_timestamp()
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
