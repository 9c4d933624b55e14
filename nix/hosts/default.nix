# owner's values -> both machines, as nixpkgs.lib.nixosSystem takes them.
{ inputs, module }:
owner:
let
  system =
    host:
    inputs.nixpkgs.lib.nixosSystem {
      modules = [
        { nixpkgs.hostPlatform = "aarch64-linux"; }
        "${inputs.dgx-spark}/modules/dgx-spark.nix"
        inputs.disko.nixosModules.disko
        module
        ./hardware.nix
        (import ./disk.nix owner.disk)
        (import ./cluster.nix owner)
        host
      ]
      ++ owner.modules or [ ];
    };
in
{
  spark-head = system ./spark-head.nix;
  spark-worker = system ./spark-worker.nix;
}
