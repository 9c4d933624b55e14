# The page of each node and its metrics (settings.page): on which devices it is served, and that the
# firewall lets them in. The watchdog serves it; nothing asks for a key there.
{ config, lib, ... }:
let
  cfg = config.services.glm53;
  inherit (cfg.effective) page;
  devices = cfg.pageInterfaces;
in
{
  imports = [ ./core.nix ];

  options.services.glm53.pageInterfaces = lib.mkOption {
    type = lib.types.listOf lib.types.str;
    default = [ ];
    example = [ "enP7s7" ];
    description = ''
      Network devices of this machine on which its page and its metrics are served, beside loopback,
      and on which the firewall lets browsers and Prometheus in. Whoever is on them can read both.
    '';
  };

  config = lib.mkIf cfg.enable {
    # By name: which address a device has is decided by DHCP.
    services.glm53.settings.page.host = lib.mkIf (devices != [ ]) (
      lib.mkDefault ([ "127.0.0.1" ] ++ devices)
    );

    networking.firewall.interfaces = lib.mkIf page.enabled (
      lib.genAttrs devices (_: {
        allowedTCPPorts = [ page.port ];
      })
    );

    warnings =
      lib.optional (devices != [ ] && !page.enabled)
        "services.glm53.pageInterfaces: the page is off (settings.page.enabled): nothing is served there."
      ++
        lib.optional
          (
            devices == [ ]
            && page.enabled
            && !lib.all (lib.hasPrefix "127.") page.host
            && config.networking.firewall.enable
          )
          "services.glm53.pageInterfaces: the page is served on ${lib.concatStringsSep ", " page.host}, and the firewall lets nobody reach port ${toString page.port}. Name the device.";
  };
}
