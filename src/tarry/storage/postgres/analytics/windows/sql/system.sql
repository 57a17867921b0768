-- The identity of the cluster: transaction ids are meaningless in another one.
select system_identifier::text from pg_control_system()
