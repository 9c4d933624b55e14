# What the machine with Prometheus is told.
{ lib }:
let
  library = import (lib + "/lib");
  prometheus =
    options:
    (library.evalModules {
      modules = [
        ./options.nix
        ../../nix/modules/monitoring.nix
        { services.glm53-monitoring = options; }
      ];
    }).config.services.prometheus;
in
{
  off = prometheus { };
  plain = prometheus {
    enable = true;
    nodes = [
      "head:8890"
      "worker:8890"
    ];
  };
  watched = prometheus {
    enable = true;
    nodes = [
      "head:8890"
      "worker:8890"
    ];
    api = "head:8888";
    apiKeyFile = "/run/key";
  };
}
