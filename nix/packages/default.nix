# Everything that is built here. `pkgs` is nixpkgs; the engine is for aarch64-linux alone, that of the
# tests for x86_64-linux.
{ pkgs }:
pkgs.lib.makeScope pkgs.newScope (self: {
  glm53ctl = self.callPackage ./glm53ctl.nix { };
  units = self.callPackage ./units.nix { };
  overlay = self.callPackage ./overlay.nix { };

  environment = self.callPackage ./environment.nix { };
  exllamav3-ext = self.callPackage ./exllamav3-ext.nix { };
  engine = self.callPackage ./engine.nix { };
  engine-cpu = self.callPackage ./engine-cpu.nix { };
})
