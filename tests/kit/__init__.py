"""What tests stand on: servers, databases, clocks, and one way to drive every store."""
