"""Pure `DataFrame -> DataFrame` functions: no session, no clock, no I/O."""
