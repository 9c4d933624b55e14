# A USB image that puts one machine's finished system onto its disk, without a network.
installed:
{
  lib,
  pkgs,
  modulesPath,
  ...
}:
let
  inherit (installed.config.system.build) toplevel diskoScript;
  inherit (installed.config.networking) hostName;

  install = pkgs.writeShellApplication {
    name = "install-spark";
    text = ''
      # The image logs in as `nixos`, who has no disk and no store to write to.
      [ "$(id -u)" = 0 ] || exec sudo "$0" "$@"
      echo "This erases ${installed.config.disko.devices.disk.main.device} and makes it ${hostName}."
      read -r -p "Type ${hostName} to go on: " answer
      [ "$answer" = ${hostName} ] || exit 1
      ${diskoScript}
      nixos-install --no-root-password --no-channel-copy --system ${toplevel}
      install -d -m 700 /mnt/etc/credstore
      echo "Done. Put the secrets into /mnt/etc/credstore (docs/owners.md), then reboot."
    '';
  };
in
{
  imports = [ "${modulesPath}/installer/cd-dvd/installation-cd-minimal.nix" ];

  hardware.dgx-spark.enable = true;
  boot.supportedFilesystems.zfs = lib.mkForce false; # not built for this kernel
  environment.systemPackages = [ install ];

  isoImage.storeContents = [
    toplevel
    diskoScript
  ];
  image.baseName = lib.mkForce "glm53-${hostName}";
}
