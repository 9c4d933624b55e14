# Who reaches what: clients the API on named interfaces, the peer everything on the rails.
{ config, lib, ... }:
let
  cfg = config.services.glm53;
  inherit (cfg.effective) api;
  local = api.host == "localhost" || api.host == "::1" || lib.hasPrefix "127." api.host;
in
{
  imports = [ ./core.nix ];

  options.services.glm53.apiInterfaces = lib.mkOption {
    type = lib.types.listOf lib.types.str;
    default = [ ];
    example = [ "enP7s7" ];
    description = ''
      Network devices on which the firewall of the head lets clients reach the API. Nothing is
      opened elsewhere, whatever `settings.api.host` says.
    '';
  };

  config = lib.mkIf (cfg.enable && cfg.rank == 0) {
    networking.firewall.interfaces = lib.genAttrs cfg.apiInterfaces (_: {
      allowedTCPPorts = [ api.port ];
    });

    warnings =
      lib.optional (cfg.apiInterfaces == [ ] && !local && config.networking.firewall.enable)
        "services.glm53.apiInterfaces: API_LOOPBACK: the API listens on ${api.host}, and the firewall lets nobody reach port ${toString api.port}. Name the LAN's device."
      ++
        lib.optional (cfg.apiInterfaces != [ ] && local)
          "services.glm53.apiInterfaces: API_LOOPBACK: the firewall is open for the API, which listens on ${api.host} only. Set settings.api.host.";
  };
}
