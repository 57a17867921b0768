-- What distinguishes this installation from others that could write to the same lake: cluster, database and schema. Not by name: a
-- schema that was created again counts its batches and runs from the beginning.
select s.system_identifier || '/' || d.oid || '/' || 'tarry'::regnamespace::oid
from pg_control_system() s cross join pg_database d where d.datname = current_database()
