# Ships services/ as it is and extends every unit by what only NixOS knows: where programs are.
{ config, lib, ... }:
let
  cfg = config.services.glm53;
  units = (import ../lib { inherit lib; }).readUnits ../../services;

  optionOf = {
    service = "services";
    socket = "sockets";
    path = "paths";
    timer = "timers";
    target = "targets";
  };

  extension =
    unit:
    {
      overrideStrategy = "asDropin";
      # NixOS reads no [Install] of shipped units. Every switch starts what is wanted, so a rank that
      # was stopped (`glm53ctl down`) comes back with it: docs/owners.md says so. X-OnlyManualStart= on
      # glm53.target would not help, since multi-user.target, which wants it, is started as well.
      wantedBy = lib.optionals (!lib.elem unit.file cfg.unwanted) unit.wantedBy;
    }
    // lib.optionalAttrs (unit.kind == "service") {
      serviceConfig.ExecSearchPath = "${cfg.package}/bin";
    };

  ofKind =
    kind:
    lib.listToAttrs (
      map (unit: lib.nameValuePair unit.name (extension unit)) (lib.filter (u: u.kind == kind) units)
    );
in
{
  config = lib.mkIf cfg.enable {
    systemd =
      lib.mapAttrs' (kind: option: lib.nameValuePair option (ofKind kind)) optionOf
      // {
        packages = [ cfg.units ];
        tmpfiles.packages = [ cfg.units ];
      };

    # As services/glm53.sysusers.conf has it.
    users.users.glm53 = {
      isSystemUser = true;
      group = "glm53";
      description = "GLM-5.3-Flash appliance";
      home = "/var/lib/glm53";
    };
    users.groups.glm53 = { };
  };
}
