{
  description = "My two DGX Sparks";

  inputs.glm53.url = "github:OWNER/REPOSITORY"; # where you got this from

  outputs =
    { glm53, ... }:
    {
      # nixos-rebuild switch --flake .#spark-head, and .#spark-worker
      nixosConfigurations = glm53.lib.pair (import ./owner.nix);
      inherit (glm53) apps;
    };
}
