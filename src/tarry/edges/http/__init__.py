"""The broker: any language that speaks HTTP can produce and consume. It translates, and decides nothing."""
