-- Which cluster this is: transaction numbers mean nothing in another one.
select system_identifier::text from pg_control_system()
