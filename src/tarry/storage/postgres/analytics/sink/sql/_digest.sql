-- What identifies the staged rows `r` of a task, in any order: queue and key, or the payload where the key is generated.
sum(case when r.generated then hash_record_extended(row(r.queue, r.payload), 0)
    else hash_record_extended(row(r.queue, r.key), 1) end)
