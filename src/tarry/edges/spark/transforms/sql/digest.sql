-- Row count of files, and the digest that PostgreSQL computes for the same rows. A file of a deleted queue can contain events of
-- a new queue of the same name, whose retention then applies.
select file_path as path, max(queue_id) as queue_id, first(queue_name) as queue, count(*) as rows,
    sum({hash}) as checksum, min(unix_micros(at)) as min_at, max(unix_micros(at)) as max_at, first(file_size) as bytes
from {files}
group by file_path
