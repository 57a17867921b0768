-- Lock an attempt for its merge, and return whether it is stored already: the reply to an earlier try may be lost.
select part is not null from tarry.sink_attempt where id = %(attempt)s for no key update
