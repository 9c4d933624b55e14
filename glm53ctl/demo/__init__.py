"""The demo: a tiny model made here, served by two real ranks on this machine's CPU."""
