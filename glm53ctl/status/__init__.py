"""The state of the pair: one snapshot, several renderings."""
