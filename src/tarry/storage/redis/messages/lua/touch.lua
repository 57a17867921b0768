-- Prolong leases. An expired lease is refused even if no other consumer has leased the message: its holder must know that
-- another consumer may do so at any time.
-- include: lua/_settle
return settle('touch', function(row)
  if is_free(row) then return 'l' end
  row.lease_until = now + (a.lease_for or options_of(row).lease_for or tonumber(queue.lease_for))
  hold(row)
  note('touched', row, {leased = true}, store(row))
end)
