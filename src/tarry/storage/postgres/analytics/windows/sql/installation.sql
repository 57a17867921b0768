-- The identity of this installation among others that could write to the same lake: cluster, database and schema. Not by name:
-- a schema that was created again numbers its batches and runs from the start.
select s.system_identifier || '/' || d.oid || '/' || 'tarry'::regnamespace::oid
from pg_control_system() s cross join pg_database d where d.datname = current_database()
