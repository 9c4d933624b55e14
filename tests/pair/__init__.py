"""Tests of the pair on two real systemd hosts."""
