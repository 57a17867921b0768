-- For this transaction only: memory to sort a large write, and no JIT compilation of a plan that runs a few times.
select set_config('jit', 'off', true) as jit,
    set_config('work_mem', greatest(pg_size_bytes(current_setting('work_mem')), 64 * 1024 * 1024) / 1024 || 'kB', true)
