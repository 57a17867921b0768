"""The broker: produce and consume by HTTP, from any language. It translates, and decides nothing."""
