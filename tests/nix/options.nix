# Stand-ins for NixOS: the options that our modules set or read, with the types and defaults of the
# real ones. Above each is the file of nixpkgs that declares it and the commit at which that was read
# (`@ 12 digits`); none is the pinned revision, of which no copy was within reach. No substitute for a
# build: what is not declared here fails the evaluation.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  option = type: default: mkOption { inherit type default; };
  # nixos/lib/systemd-unit-options.nix @ 01f31c2ee7d0, unitOption: what a line of a unit file may be.
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

  # nixos/lib/systemd-unit-options.nix @ 01f31c2ee7d0: sharedOptions, commonUnitOptions and
  # stage2CommonUnitOptions. overrideStrategy came later; its two values are those that
  # nixos/lib/systemd-lib.nix compares it with.
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
    reloadTriggers = option (types.listOf value) [ ];
  };
  unitsOf =
    extra: option (types.attrsOf (types.submodule { options = unit // extra; })) { };

  # nixos/lib/systemd-unit-options.nix @ 01f31c2ee7d0: serviceOptions, stage2ServiceOptions
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

  # nixos/modules/system/boot/networkd.nix @ dd3bd10db439
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

  # nixos/modules/services/networking/firewall.nix @ 0192bb844360: commonOptions
  portList = mkOption {
    type = types.listOf types.port;
    default = [ ];
    apply = list: lib.unique (lib.sort lib.lessThan list);
  };
  ports = {
    allowedTCPPorts = portList;
    allowedUDPPorts = portList;
  };
in
{
  options = {
    # nixos/modules/misc/assertions.nix @ 08062fccc11d
    assertions = option (types.listOf types.unspecified) [ ];
    warnings = option (types.listOf types.str) [ ];

    # nixos/modules/system/boot/systemd.nix @ 0017a06717bb
    systemd.packages = option (types.listOf types.package) [ ];
    systemd.services = unitsOf service;
    systemd.sockets = unitsOf { socketConfig = section; };
    systemd.paths = unitsOf { pathConfig = section; };
    systemd.timers = unitsOf { timerConfig = section; };
    systemd.targets = unitsOf { };
    # nixos/modules/system/boot/systemd/tmpfiles.nix @ 046599161540
    systemd.tmpfiles.packages = option (types.listOf types.package) [ ];
    systemd.tmpfiles.rules = option (types.listOf types.str) [ ];

    # nixos/modules/system/boot/networkd.nix @ dd3bd10db439
    systemd.network.enable = option types.bool false;
    systemd.network.links = networkFile { };
    systemd.network.networks = networkFile {
      address = option (types.listOf types.str) [ ];
      networkConfig = section;
    };
    systemd.network.wait-online.anyInterface = option types.bool false;

    # nixos/modules/system/etc/etc.nix @ 05924f714f31
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
    # nixos/modules/config/system-path.nix @ 0354e8b747c8
    environment.systemPackages = option (types.listOf types.package) [ ];

    # nixos/modules/config/users-groups.nix @ 005ab72f9cf5; the keys: services/networking/ssh/sshd.nix
    # @ 00976b194fe3, where they are any text
    users.users = option (types.attrsOf (
      types.submodule {
        options = {
          isSystemUser = option types.bool false;
          isNormalUser = option types.bool false;
          group = option types.str "";
          description = option (types.passwdEntry types.str) "";
          home = option (types.passwdEntry types.path) "/var/empty";
          openssh.authorizedKeys.keys = option (types.listOf types.singleLineStr) [ ];
        };
      }
    )) { };
    users.groups = option (types.attrsOf (
      types.submodule { options.gid = option (types.nullOr types.int) null; }
    )) { };
    users.mutableUsers = option types.bool true;

    # nixos/modules/services/networking/firewall.nix @ 0192bb844360
    networking.firewall = ports // {
      enable = option types.bool true;
      trustedInterfaces = option (types.listOf types.str) [ ];
      interfaces = option (types.attrsOf (types.submodule { options = ports; })) { };
    };
    # nixos/modules/services/networking/networkmanager.nix @ 01b0355140f7; `unmanaged` in later
    # versions of the same file
    networking.networkmanager.enable = option types.bool false;
    networking.networkmanager.unmanaged = option (types.listOf types.str) [ ];
    # nixos/modules/tasks/network-interfaces.nix @ 003a3fd2f05c; hostName in an earlier version of it
    networking.hostName = option types.str "nixos";
    networking.useDHCP = option types.bool true;
    networking.useNetworkd = option types.bool false;

    # nixos/modules/system/boot/kernel.nix @ 045d702e8af1
    boot.kernelModules = option (types.listOf types.str) [ ];
    boot.kernelParams = option (types.listOf types.str) [ ];
    # nixos/modules/config/sysctl.nix @ 05924f714f31
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
    # nixos/modules/system/boot/loader/systemd-boot/systemd-boot.nix @ 01e499cec163, efi.nix
    # @ 0e1f31068d12
    boot.loader.systemd-boot.enable = option types.bool false;
    boot.loader.systemd-boot.configurationLimit = option (types.nullOr types.int) null;
    boot.loader.efi.canTouchEfiVariables = option types.bool false;

    # nixos/modules/config/swap.nix @ 03a362fe87d4, zram.nix @ 05924f714f31
    swapDevices = option (types.listOf (
      types.submodule {
        options.device = mkOption { type = types.str; };
        options.size = option (types.nullOr types.int) null;
      }
    )) [ ];
    zramSwap.enable = option types.bool false;

    # nixos/modules/services/hardware/udev.nix @ 01f19f54e046
    services.udev.packages = option (types.listOf types.path) [ ];
    # nixos/modules/services/networking/ssh/sshd.nix @ 00976b194fe3; `settings` in later versions of
    # the same file
    services.openssh.enable = option types.bool false;
    services.openssh.settings = option (types.submodule {
      freeformType = types.attrsOf types.raw;
      options.PasswordAuthentication = option (types.nullOr types.bool) true;
    }) { };
    # nixos/modules/services/misc/nix-ssh-serve.nix @ 14fd97601611
    nix.sshServe = {
      enable = option types.bool false;
      write = option types.bool false;
      keys = option (types.listOf types.str) [ ];
      protocol = option (types.enum [
        "ssh"
        "ssh-ng"
      ]) "ssh";
    };
    # nixos/modules/config/nix.nix @ 013635633ffe
    nix.settings = option (types.submodule {
      freeformType = types.attrsOf value;
      options.trusted-users = mkOption { type = types.listOf types.str; };
    }) { };
    # nixos/modules/misc/version.nix @ 03a362fe87d4
    system.stateVersion = option types.str "26.11";

    # nixos/modules/services/monitoring/prometheus/default.nix, in a version that has no commit in the
    # index it was read from; its scrapeConfigs are submodules with a field for everything
    services.prometheus.enable = option types.bool false;
    services.prometheus.checkConfig = option (types.either types.bool (types.enum [ "syntax-only" ])) true;
    services.prometheus.ruleFiles = option (types.listOf types.path) [ ];
    services.prometheus.scrapeConfigs = option (types.listOf types.attrs) [ ];

    # graham33/nixos-dgx-spark @ f1ebf94a047a: modules/dgx-spark.nix, modules/dgx-dashboard.nix
    hardware.dgx-spark.enable = option types.bool false;
    services.dgx-dashboard.enable = option types.bool false;
    # nixos/modules/virtualisation/podman/default.nix @ 007b68856e60
    virtualisation.podman.enable = option types.bool false;
    virtualisation.podman.dockerCompat = option types.bool false;
    virtualisation.podman.dockerSocket.enable = option types.bool false;
    # nix-community/disko @ 878ec37d6a8f: module.nix, whose type checks the layout
    disko.devices = option (types.attrsOf types.raw) { };
  };

  # As the real ones have it: lists of ours are added to theirs.
  config.nix.settings.trusted-users = [ "root" ];
  config.networking.firewall.trustedInterfaces = lib.mkIf config.networking.firewall.enable [ "lo" ];
}
