"""Configuration: schema, where values come from, and the rules that forbid combinations."""
