"""What fits and how fast it can be, before anything starts: memory, KV pool, roofline. Pure."""
