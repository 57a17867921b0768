-- How many attempts whoever leased a message last asked for, by a policy of its own; a message that says so itself comes
-- first. Without it a sweeper would go by the queue alone, and bury what its handler would still try.
alter table tarry.message add column attempts_asked int;
