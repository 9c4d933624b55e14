# import nixpkgs { ... }
{
  system,
  overlays,
  config,
}:
let
  pkgs = import ./stand-in/pkgs.nix {
    lib = import ./lib;
    inherit system overlays;
  };
in
# What is unfree and not named is refused, as there.
pkgs // { inherit config; }
