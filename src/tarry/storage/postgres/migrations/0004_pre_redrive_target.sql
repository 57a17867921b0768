-- A redrive job may move dead letters to another queue. A column without a default: an exclusive lock for a moment.

alter table tarry.redrive_job add column target integer;
