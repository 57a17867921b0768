-- Prolong leases. Refused once a lease has ended, even if no consumer leased the message since: its holder must know that
-- another may lease it any time.
-- include: lua/_settle
return settle('touch', function(row)
  if is_free(row) then return 'l' end
  row.lease_until = now + (a.lease_for or options_of(row).lease_for or tonumber(queue.lease_for))
  hold(row)
  note('touched', row, {leased = true}, store(row))
end)
