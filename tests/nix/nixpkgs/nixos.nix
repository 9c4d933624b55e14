# What a machine of NixOS is built of, as names; with its assertions, as
# nixos/modules/system/activation/top-level.nix makes them an error.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  failed = map (a: a.message) (lib.filter (a: !a.assertion) config.assertions);
  pkgs = import ./. {
    system = config.nixpkgs.hostPlatform;
    overlays = config.nixpkgs.overlays;
    config = { };
  };
  built = name: pkgs.runCommand name { } "";
in
{
  options = {
    nixpkgs.hostPlatform = mkOption { type = types.str; };
    nixpkgs.overlays = mkOption {
      type = types.listOf types.raw;
      default = [ ];
    };
    system.build = mkOption {
      type = types.lazyAttrsOf types.raw;
      default = { };
    };
  };

  config = {
    _module.args.pkgs = pkgs;
    system.build = {
      toplevel =
        if failed == [ ] then
          built "nixos-system-${config.networking.hostName}"
        else
          throw "Failed assertions:\n- ${lib.concatStringsSep "\n- " failed}";
      diskoScript = built "disko-script-${config.networking.hostName}";
    };
  };
}
