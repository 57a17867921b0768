-- Every lake that archives this journal, with how far it has come: what one of them lacks must not be pruned.
select distinct on (lake) lake, to_edge, system_id
from tarry.archive_batch
where state in ('durable', 'pruned')
order by lake, place desc
