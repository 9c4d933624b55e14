# Both machines of nix/hosts with the stand-ins, as files to be put into a root: unit files and
# drop-ins, networkd, configuration.
{
  lib,
  # JSON: `owner`, the six values and modules; `places`, where packages are; `settings`, instead of the hosts'.
  given,
}:
let
  library = import (lib + "/lib");
  inherit (library.importJSON given) owner places settings;
  evaluate = import ./evaluate.nix {
    lib = library;
    inherit places;
  };

  host =
    file:
    evaluate (
      [
        ../../nix/modules
        ../../nix/hosts/hardware.nix
        (import ../../nix/hosts/disk.nix owner.disk)
        (import ../../nix/hosts/cluster.nix owner)
        file
      ]
      ++ owner.modules or [ ]
      ++ library.optional (settings != null) {
        services.glm53.settings = library.mkOverride 50 settings;
      }
    );
in
{
  spark-head = host ../../nix/hosts/spark-head.nix;
  spark-worker = host ../../nix/hosts/spark-worker.nix;
}
