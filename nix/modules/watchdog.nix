# The outside eye, and its hand on D-Bus.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.glm53;
in
{
  imports = [ ./core.nix ];

  options.services.glm53.busPython = lib.mkOption {
    type = lib.types.package;
    default = pkgs.python3.withPackages (python: [ python.pydbus ]);
    defaultText = lib.literalExpression "pkgs.python3.withPackages (python: [ python.pydbus ])";
    description = "Interpreter with gi and pydbus, for the agent that speaks D-Bus.";
  };

  config = lib.mkIf cfg.enable {
    services.glm53.settings.watchdog.bus_python = lib.mkDefault "${cfg.busPython}/bin/python3";

    systemd.services = {
      glm53-watchdog = {
        # NVML, which tells how much power the GPU draws.
        environment.LD_LIBRARY_PATH = "/run/opengl-driver/lib";
        restartTriggers = [ cfg.configFile ];
      };
      "glm53-bus@" = {
        # gi finds GLib and Gio by their typelibs.
        environment.GI_TYPELIB_PATH = lib.makeSearchPathOutput "out" "lib/girepository-1.0" [
          pkgs.glib
          pkgs.gobject-introspection
        ];
        # A connection is its input: started by anything but the socket, as a switch would, it fails.
        # The watchdog is restarted, and with its next connection there is a new one.
        restartIfChanged = false;
      };
    };
  };
}
