# A stand-in for nixos-dgx-spark: its options are in tests/nix/options.nix.
{ }
