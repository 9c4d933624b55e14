# Both machines of the VM test (nix/checks/pair.nix) with the stand-ins, and its script.
{ lib }:
let
  library = import (lib + "/lib");
  system = "x86_64-linux";
  pkgs = import ./pkgs.nix {
    lib = library;
    inherit system;
  };
  evaluate = import ./evaluate.nix {
    lib = library;
    inherit system;
  };
  test = import ../../nix/checks/pair.nix {
    lib = library;
    hostPkgs = pkgs;
  };

  # nixos/modules/virtualisation/qemu-vm.nix
  virtualMachine = {
    options.virtualisation = library.genAttrs [ "cores" "memorySize" "vlans" ] (
      _: library.mkOption { type = library.types.raw; }
    );
  };
in
{
  nodes = library.mapAttrs (
    name: module:
    evaluate [
      module
      virtualMachine
      { networking.hostName = name; }
    ]
  ) test.nodes;
  inherit (test) testScript;
}
