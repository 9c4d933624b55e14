# A stand-in for the flake of nixpkgs, so that ours can be evaluated whole: its library (lib/, put
# here by the test), and packages and NixOS as far as tests/nix goes (stand-in/, likewise).
{
  outputs =
    { self }:
    let
      lib = import ./lib;
    in
    {
      lib = lib // {
        nixosSystem =
          { modules }:
          lib.evalModules {
            modules = [
              ./stand-in/options.nix
              ./nixos.nix
            ]
            ++ modules;
            specialArgs.modulesPath = "${self}/modules";
          };
      };
    };
}
