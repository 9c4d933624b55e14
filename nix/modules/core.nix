# What every concern needs: the options, the configuration file, its rules, and the units.
{
  imports = [
    ./options.nix
    ./settings.nix
    ./asserts.nix
    ./units.nix
  ];
}
