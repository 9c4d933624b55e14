# A stand-in for disko: its options are in tests/nix/options.nix.
{
  outputs = _: { nixosModules.disko = { }; };
}
