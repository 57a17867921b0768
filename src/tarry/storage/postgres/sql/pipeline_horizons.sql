-- From which day on a lake has the history of a queue, where it does not have all of it.
select queue, before from tarry.archive_horizon where lake = %(lake)s
