"""Read-only probes of this node. Nothing here judges and nothing here changes anything."""
