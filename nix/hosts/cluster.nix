# What both machines are. Head and worker add their name and rank, so nothing else can differ.
owner:
{ lib, ... }:
let
  names = [
    "spark-head"
    "spark-worker"
  ];
  fabric = (lib.head owner.rails).addresses;
  open = owner.lan != [ ];
in
{
  services.glm53 = {
    enable = true;

    settings = {
      inherit (owner) profile;
      nodes = lib.zipListsWith (name: address: { inherit name address; }) names fabric;
      licenses.accept = owner.licenses;
      # Which devices it can be reached on is the firewall's business; the key is asked for anyway.
      api.host = if open then "0.0.0.0" else "127.0.0.1";
    };

    fabric = {
      enable = true;
      inherit (owner) rails;
    };

    apiInterfaces = owner.lan;
    # A default, so that a module of agenix or sops-nix may say another.
    credentials.apiKey = lib.mkIf open (lib.mkDefault "/etc/credstore/glm53.api-key");
    closureKeys = owner.sshKeys;
  };

  # The rails are networkd's, so the LAN is as well.
  networking.useNetworkd = true;
  networking.useDHCP = false;
  systemd.network.networks."50-lan" = {
    matchConfig.Type = "ether";
    networkConfig.DHCP = "yes";
  };
  # The second port has no cable.
  systemd.network.wait-online.anyInterface = true;

  services.openssh = {
    enable = true;
    settings.PasswordAuthentication = false;
  };
  users.users.root.openssh.authorizedKeys.keys = owner.sshKeys;
  users.mutableUsers = false;

  assertions = [
    {
      assertion = owner.sshKeys != [ ];
      message = "owner.sshKeys: CFG_MISSING: nobody could log in. Give at least one SSH key.";
    }
  ];

  nix.settings.experimental-features = [
    "nix-command"
    "flakes"
  ];

  boot.loader.systemd-boot = {
    enable = true;
    # A generation is a kernel and an initrd in /boot, and one to go back to is what they are for.
    configurationLimit = 10;
  };
  boot.loader.efi.canTouchEfiVariables = true;

  system.stateVersion = "26.11";
}
