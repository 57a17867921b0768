-- Release messages: ready immediately, or due later. The attempt does not count.
-- include: lua/_settle
return settle('release', function(row)
  row.attempt = row.attempt - 1
  row.due_at = a.due_at or (a.after and num(now + a.after)) or row.due_at
  note('released', row, {leased = true})
  wait(row)
  end_lease(row)
  store(row)
end)
