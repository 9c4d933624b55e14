# The options of an image that ours sets: nixos/modules/installer/cd-dvd/iso-image.nix,
# nixos/modules/image/file-options.nix, nixos/modules/tasks/filesystems.nix.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
in
{
  options = {
    isoImage.storeContents = mkOption { type = types.listOf types.package; };
    image.baseName = mkOption { type = types.str; };
    boot.supportedFilesystems = mkOption {
      type = types.attrsOf types.bool;
      default = { };
    };
  };

  config = {
    image.baseName = "nixos-minimal";
    boot.supportedFilesystems.zfs = lib.mkDefault true;
    system.build.isoImage = pkgs.runCommand "${config.image.baseName}.iso" {
      contents = config.isoImage.storeContents;
      packages = config.environment.systemPackages;
    } "";
  };
}
