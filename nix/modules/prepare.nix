# What root does for a rank: clock cap and memory reserve (settings.power, settings.memory) before
# it starts, a free page cache when it asks.
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

  config = lib.mkIf cfg.enable {
    systemd.services.glm53-prepare = {
      environment.LD_LIBRARY_PATH = "/run/opengl-driver/lib"; # NVML
      restartTriggers = [ cfg.configFile ];
    };
    systemd.services.glm53-reclaim.path = [ pkgs.util-linux ]; # swapoff, swapon
  };
}
