# Stand-ins for NixOS: the options that our modules set or read, with the types and defaults of the
# real ones, each under the file of nixpkgs that declares it. They were read there, not at the
# pinned revision; those marked "from memory" were not. No substitute for a build: what is not
# declared here fails the evaluation.
{ lib, ... }:
let
  inherit (lib) mkOption types;
  option = type: default: mkOption { inherit type default; };
  # nixos/lib/systemd-lib.nix and systemd-unit-options.nix: values of unit files.
  atom = types.nullOr (
    types.oneOf [
      types.bool
      types.int
      types.float
      types.str
      types.path
      types.package
    ]
  );
  value = types.either atom (types.listOf atom);
  section = option (types.attrsOf value) { };

  # nixos/lib/systemd-unit-options.nix: unitOptions, sharedOptions
  unit = {
    enable = option types.bool true;
    overrideStrategy = option (types.enum [
      "asDropinIfExists"
      "asDropin"
    ]) "asDropinIfExists";
    wantedBy = option (types.listOf types.str) [ ];
    requiredBy = option (types.listOf types.str) [ ];
    aliases = option (types.listOf types.str) [ ];
    description = option types.singleLineStr "";
    after = option (types.listOf types.str) [ ];
    before = option (types.listOf types.str) [ ];
    wants = option (types.listOf types.str) [ ];
    partOf = option (types.listOf types.str) [ ];
    unitConfig = section;
    restartTriggers = option (types.listOf types.unspecified) [ ];
    reloadTriggers = option (types.listOf types.unspecified) [ ];
  };
  unitsOf =
    extra: option (types.attrsOf (types.submodule { options = unit // extra; })) { };

  # nixos/lib/systemd-unit-options.nix: serviceOptions
  service = {
    environment = option (types.attrsOf (
      types.nullOr (
        types.oneOf [
          types.str
          types.path
          types.package
        ]
      )
    )) { };
    path = option (types.listOf (types.either types.package types.str)) [ ];
    serviceConfig = section;
    script = option types.lines "";
    preStart = option types.lines "";
    restartIfChanged = option types.bool true;
    stopIfChanged = option types.bool true;
  };

  # nixos/modules/system/boot/networkd.nix
  networkFile =
    extra:
    option (types.attrsOf (
      types.submodule {
        options = {
          enable = option types.bool true;
          matchConfig = section;
          linkConfig = section;
        }
        // extra;
      }
    )) { };

  # nixos/modules/services/networking/firewall.nix: commonOptions
  ports = {
    allowedTCPPorts = option (types.listOf types.port) [ ];
    allowedUDPPorts = option (types.listOf types.port) [ ];
  };
in
{
  options = {
    # nixos/modules/misc/assertions.nix
    assertions = option (types.listOf types.unspecified) [ ];
    warnings = option (types.listOf types.str) [ ];

    # nixos/modules/system/boot/systemd.nix
    systemd.packages = option (types.listOf types.package) [ ];
    systemd.services = unitsOf service;
    systemd.sockets = unitsOf { socketConfig = section; };
    systemd.paths = unitsOf { pathConfig = section; };
    systemd.timers = unitsOf { timerConfig = section; };
    systemd.targets = unitsOf { };
    # nixos/modules/system/boot/systemd/tmpfiles.nix
    systemd.tmpfiles.packages = option (types.listOf types.package) [ ];
    systemd.tmpfiles.rules = option (types.listOf types.str) [ ];

    # nixos/modules/system/boot/networkd.nix
    systemd.network.enable = option types.bool false;
    systemd.network.links = networkFile { };
    systemd.network.networks = networkFile {
      DHCP = option (types.nullOr types.str) null;
      address = option (types.listOf types.str) [ ];
      networkConfig = section;
    };
    systemd.network.wait-online.anyInterface = option types.bool false;

    # nixos/modules/system/etc/etc.nix
    environment.etc = option (types.attrsOf (
      types.submodule {
        options = {
          enable = option types.bool true;
          text = option (types.nullOr types.lines) null;
          source = mkOption { type = types.path; };
          mode = option types.str "symlink";
        };
      }
    )) { };
    # nixos/modules/config/system-path.nix: from memory
    environment.systemPackages = option (types.listOf types.package) [ ];

    # nixos/modules/config/users-groups.nix: from memory
    users.users = option (types.attrsOf (
      types.submodule {
        options = {
          isSystemUser = option types.bool false;
          isNormalUser = option types.bool false;
          group = option types.str "";
          description = option types.str "";
          home = option types.path "/var/empty";
          openssh.authorizedKeys.keys = option (types.listOf types.singleLineStr) [ ];
        };
      }
    )) { };
    users.groups = option (types.attrsOf (
      types.submodule { options.gid = option (types.nullOr types.int) null; }
    )) { };
    users.mutableUsers = option types.bool true;

    # nixos/modules/services/networking/firewall.nix
    networking.firewall = ports // {
      enable = option types.bool true;
      trustedInterfaces = option (types.listOf types.str) [ ];
      interfaces = option (types.attrsOf (types.submodule { options = ports; })) { };
    };
    # nixos/modules/services/networking/networkmanager.nix: from memory
    networking.networkmanager.enable = option types.bool false;
    networking.networkmanager.unmanaged = option (types.listOf types.str) [ ];
    # nixos/modules/tasks/network-interfaces.nix: from memory
    networking.hostName = option types.str "nixos";
    networking.useDHCP = option types.bool true;
    networking.useNetworkd = option types.bool false;

    # nixos/modules/system/boot/kernel.nix: from memory
    boot.kernelModules = option (types.listOf types.str) [ ];
    boot.kernelParams = option (types.listOf types.str) [ ];
    # nixos/modules/config/sysctl.nix
    boot.kernel.sysctl = option (types.submodule {
      freeformType = types.attrsOf (
        types.nullOr (
          types.oneOf [
            types.bool
            types.str
            types.int
          ]
        )
      );
    }) { };
    # nixos/modules/system/boot/loader/systemd-boot/systemd-boot.nix, efi.nix: from memory
    boot.loader.systemd-boot.enable = option types.bool false;
    boot.loader.systemd-boot.configurationLimit = option (types.nullOr types.int) null;
    boot.loader.efi.canTouchEfiVariables = option types.bool false;

    # nixos/modules/config/swap.nix, zram.nix
    swapDevices = option (types.listOf (
      types.submodule {
        options.device = mkOption { type = types.str; };
        options.size = option (types.nullOr types.int) null;
      }
    )) [ ];
    zramSwap.enable = option types.bool false;

    # nixos/modules/services/hardware/udev.nix: from memory
    services.udev.packages = option (types.listOf types.path) [ ];
    # nixos/modules/services/networking/ssh/sshd.nix: from memory
    services.openssh.enable = option types.bool false;
    services.openssh.settings = option (types.submodule { freeformType = types.attrsOf types.raw; }) { };
    # nixos/modules/services/misc/nix-ssh-serve.nix
    nix.sshServe = {
      enable = option types.bool false;
      write = option types.bool false;
      keys = option (types.listOf types.str) [ ];
      protocol = option (types.enum [
        "ssh"
        "ssh-ng"
      ]) "ssh";
    };
    # nixos/modules/config/nix.nix: from memory
    nix.settings = option (types.submodule {
      freeformType = types.attrsOf types.raw;
      options.trusted-users = option (types.listOf types.str) [ "root" ];
      options.experimental-features = option (types.listOf types.str) [ ];
    }) { };
    # nixos/modules/misc/version.nix, config/locale.nix: from memory
    system.stateVersion = option types.str "26.11";
    time.timeZone = option (types.nullOr types.str) null;

    # graham33/nixos-dgx-spark: modules/dgx-spark.nix, modules/dgx-dashboard.nix
    hardware.dgx-spark.enable = option types.bool false;
    services.dgx-dashboard.enable = option types.bool false;
    # nixos/modules/virtualisation/podman/default.nix: from memory
    virtualisation.podman.enable = option types.bool false;
    virtualisation.podman.dockerCompat = option types.bool false;
    virtualisation.podman.dockerSocket.enable = option types.bool false;
    # nix-community/disko: module.nix
    disko.devices = option (types.attrsOf types.raw) { };
  };
}
