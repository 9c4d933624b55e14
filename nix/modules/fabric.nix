# The ConnectX-7 cable: one or two links (rails) by place, with addresses that outlive a pulled
# cable, and the RDMA on them.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.glm53;
  fabric = cfg.fabric;
  inherit (cfg.effective) nodes;

  # The rank may be beyond `nodes`: that is a finding, not a failed evaluation.
  mine = list: if cfg.rank < lib.length list then lib.elemAt list cfg.rank else null;

  rails = lib.imap1 (number: rail: rail // { unit = "10-glm53-rail${toString number}"; }) fabric.rails;

  # Nothing else is stable: kernels change names, and the MAC that a driver shows can be changed.
  match =
    rail: if rail.path != null then { Path = rail.path; } else { PermanentMACAddress = rail.mac; };

  # Where two rails share one, the kernel answers for both on either. The prefix has 24 bits or more, so
  # the last octet alone is divided.
  network =
    address:
    let
      octets = lib.splitString "." address;
      hosts = lib.foldl' (size: _: size * 2) 1 (lib.range 1 (32 - fabric.prefixLength));
    in
    lib.take 3 octets ++ [ (lib.toIntBase10 (lib.last octets) / hosts) ];

  ownAddresses = lib.filter (address: address != null) (map (r: mine r.addresses) fabric.rails);

  complaint = place: code: what: fix: "services.glm53.fabric.${place}: ${code}: ${what} ${fix}";

  ofRail =
    number: rail:
    let
      place = "rails.${toString number}";
    in
    lib.optional ((rail.path == null) == (rail.mac == null)) (
      complaint place "CFG_FORBIDDEN" "a rail is found by its PCI path or by its MAC address, by one of them."
        "Set either path or mac."
    )
    ++ lib.optional (lib.length rail.addresses != lib.length nodes) (
      complaint "${place}.addresses" "CFG_MISSING" "${toString (lib.length rail.addresses)} addresses for ${toString (lib.length nodes)} nodes."
        "Give one for each, in the order of settings.nodes."
    );

  complaints =
    lib.concatLists (lib.imap0 ofRail fabric.rails)
    ++ lib.optional (fabric.rails == [ ]) (
      complaint "rails" "CFG_MISSING" "there is no rail to carry settings.nodes' addresses."
        "Name the port, or set fabric.enable = false and configure it yourself."
    )
    ++
      lib.optional
        (fabric.rails != [ ] && (lib.head fabric.rails).addresses != map (node: node.address) nodes)
        (
          complaint "rails.0.addresses" "NET_ADDRESS_MISSING"
            "the ranks meet at the addresses of settings.nodes, which the first rail does not have."
            "Leave rails.0.addresses out."
        )
    ++ lib.optional (cfg.effective.fabric.rails == 2 && lib.length fabric.rails < 2) (
      complaint "rails" "CFG_MISSING" "settings.fabric.rails is 2 and one rail is described here."
        "Describe the second, or leave settings.fabric.rails out."
    )
    ++ lib.optional (!lib.allUnique (map network ownAddresses)) (
      complaint "rails" "CFG_FORBIDDEN"
        "two rails of this machine are in one network: it would answer for both on either of them."
        "Give each rail a network of its own."
    )
    ++ lib.optional (!lib.allUnique (map (r: r.name) fabric.rails)) (
      complaint "rails" "CFG_FORBIDDEN" "two rails have one name." "Leave the names out."
    );
in
{
  imports = [ ./core.nix ];

  options.services.glm53.fabric = {
    enable = lib.mkEnableOption "the network between the machines (systemd-networkd and RDMA)";

    mtu = mkOption {
      type = types.ints.between 1280 9216;
      default = 9000;
      description = "MTU of the rails; the same on both ends.";
    };

    prefixLength = mkOption {
      type = types.ints.between 24 31;
      default = 24;
      description = "Prefix length of the rails' networks.";
    };

    rails = mkOption {
      default = [ ];
      example = [
        { path = "pci-0000:01:00.0"; }
        {
          path = "pci-0002:01:00.0";
          addresses = [
            "10.0.10.1"
            "10.0.10.2"
          ];
        }
      ];
      description = ''
        The links of the cable, the first of which carries the addresses of `settings.nodes`. One
        port of a Spark has two, which share its bandwidth.
      '';
      type = types.listOf (
        types.submodule {
          options = {
            path = mkOption {
              type = types.nullOr types.str;
              default = null;
              example = "pci-0000:01:00.0";
              description = "ID_PATH of the device (`udevadm info /sys/class/net/enp1s0f0np0`).";
            };
            mac = mkOption {
              type = types.nullOr (types.strMatching "([0-9a-f]{2}:){5}[0-9a-f]{2}");
              default = null;
              example = "4c:bb:47:00:00:01";
              description = "Permanent MAC address; it differs between the machines, the path does not.";
            };
            name = mkOption {
              type = types.strMatching "([a-z][a-z0-9]{0,14})?";
              default = "";
              defaultText = "rail1, rail2, …";
              description = "What the device is called on this machine.";
            };
            addresses = mkOption {
              type = types.listOf (types.strMatching "([0-9]{1,3}\\.){3}[0-9]{1,3}");
              default = map (node: node.address) nodes;
              defaultText = lib.literalExpression "those of settings.nodes";
              description = "IPv4 address of each machine on this rail, in the order of `settings.nodes`.";
            };
          };
        }
      );
      apply = lib.imap1 (
        number: rail: rail // { name = if rail.name == "" then "rail${toString number}" else rail.name; }
      );
    };
  };

  config = lib.mkIf (cfg.enable && fabric.enable) {
    assertions = map (message: {
      assertion = false;
      inherit message;
    }) complaints;

    systemd.network = {
      enable = true;

      links = lib.listToAttrs (
        map (
          rail:
          lib.nameValuePair rail.unit {
            matchConfig = match rail;
            linkConfig = {
              Name = rail.name;
              MTUBytes = toString fabric.mtu;
            };
          }
        ) rails
      );

      networks = lib.listToAttrs (
        map (
          rail:
          lib.nameValuePair rail.unit {
            matchConfig.Name = rail.name;
            address = lib.optional (mine rail.addresses != null) "${mine rail.addresses}/${toString fabric.prefixLength}";
            networkConfig = {
              # The engine and the pair link are bound to the address. Without this networkd takes it
              # away three seconds after a cable was pulled.
              ConfigureWithoutCarrier = true;
              LinkLocalAddressing = "no";
              IPv6AcceptRA = false;
            };
            linkConfig = {
              MTUBytes = toString fabric.mtu;
              # A pulled cable is a state that the supervisor reports, no failed boot.
              RequiredForOnline = "no";
            };
          }
        ) rails
      );
    };
    networking.networkmanager.unmanaged = map (rail: "interface-name:${rail.name}") rails;

    # NCCL and gloo choose their ports. On the rails there is only the other half.
    networking.firewall.trustedInterfaces = map (rail: rail.name) rails;

    # Each rail answers for its own address only.
    boot.kernel.sysctl = {
      "net.ipv4.conf.all.arp_ignore" = lib.mkDefault 1;
      "net.ipv4.conf.all.arp_announce" = lib.mkDefault 2;
    };

    # Device nodes and names of the verbs. LimitMEMLOCK= is in the unit: limits of PAM do not reach
    # services.
    boot.kernelModules = [
      "mlx5_ib"
      "ib_uverbs"
    ];
    services.udev.packages = [ pkgs.rdma-core ];
    environment.systemPackages = [
      pkgs.rdma-core
      pkgs.ethtool
    ];
  };
}
