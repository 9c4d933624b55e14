# nix build .#checks.<system>.<name>
{
  self,
  inputs,
  pkgs,
}:
let
  inherit (pkgs) lib;
  inherit (pkgs.stdenv.hostPlatform) system;

  # An owner who has read the licences, so that the machines evaluate.
  owner = import ../hosts/owner.nix // {
    sshKeys = [ "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA check" ];
    licenses = [ "ShapleyMCG-1.0" ];
  };
  evaluated = lib.mapAttrs (
    _: host: builtins.unsafeDiscardStringContext host.config.system.build.toplevel.drvPath
  ) (self.lib.pair owner);
in
{
  # Both machines, with the real NixOS: every assertion of every module.
  hosts = pkgs.writeText "glm53-hosts" (builtins.toJSON evaluated);

  format = pkgs.runCommandLocal "glm53-format" { nativeBuildInputs = [ pkgs.nixfmt ]; } ''
    find ${inputs.self}/flake.nix ${inputs.self}/nix ${inputs.self}/tests/nix -name '*.nix' -exec nixfmt --check {} +
    touch $out
  '';

  # What the modules know of the configuration is what the program knows.
  schema =
    pkgs.runCommand "glm53-schema" { } ''
      PYTHONPATH=${inputs.self} ${pkgs.glm53.glm53ctl.environment}/bin/python ${../schema.py} > schema.json
      diff ${../modules/schema.json} schema.json
      touch $out
    '';
}
// lib.optionalAttrs (system == "x86_64-linux") {
  # The engine of the tests is built for x86_64.
  pair = pkgs.testers.runNixOSTest ./pair.nix;
}
// lib.optionalAttrs (system == "aarch64-linux") {
  imports = pkgs.glm53.engine.tests.imports;
}
