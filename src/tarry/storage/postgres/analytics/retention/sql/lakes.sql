-- Every lake that archives this journal, with its edge: rows that one of them lacks must not be pruned.
select distinct on (lake) lake, to_edge, system_id
from tarry.archive_batch
where state in ('durable', 'pruned') and system_id = (select system_identifier::text from pg_control_system())
order by lake, position desc
