{
  description = "My two DGX Sparks";

  inputs.glm53.url = "github:OWNER/REPOSITORY"; # where you got this from

  outputs =
    { self, glm53 }:
    {
      # nixos-rebuild switch --flake .#spark-head, and .#spark-worker
      nixosConfigurations = glm53.lib.pair (import ./owner.nix);

      # USB images that install them: nix build .#packages.aarch64-linux.image-head
      packages.aarch64-linux = glm53.lib.images self.nixosConfigurations;

      inherit (glm53) apps;
    };
}
