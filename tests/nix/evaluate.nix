# One machine: our modules and the stand-ins -> what a test looks at. Deeply evaluated by who prints
# it: a type that nobody reads is never checked.
{
  lib,
  places ? { },
  system ? "aarch64-linux",
}:
modules:
let
  pkgs = import ./pkgs.nix { inherit lib places system; };
  inherit
    (lib.evalModules {
      modules = [ ./options.nix ] ++ modules;
      specialArgs = { inherit pkgs; };
    })
    config
    ;
  cfg = config.services.glm53;
in
{
  failed = map (a: a.message) (lib.filter (a: !a.assertion) config.assertions);
  inherit (config) warnings;
  findings = map (f: { inherit (f) rule code severity; }) cfg.findings;
  inherit (cfg) effective;
  settings = import ../../nix/modules/said.nix { inherit lib; } cfg.settings;
  units = import ./units.nix { inherit lib pkgs; } config.systemd;
  network = {
    inherit (config.systemd.network) enable links networks;
    inherit (config.networking) firewall;
    unmanaged = config.networking.networkmanager.unmanaged;
  };
  users = config.users.users;
  tmpfiles = config.systemd.tmpfiles.rules;
  etc = lib.attrNames config.environment.etc;
  boot = {
    inherit (config.boot) kernelModules;
    inherit (config.boot.kernel) sysctl;
  };
  nix = {
    inherit (config.nix) sshServe settings;
  };
  hostName = config.networking.hostName;
  inherit (cfg) closure;
  commands = lib.concatMap (
    p: lib.optional (p.meta.mainProgram or "" == "glm53ctl") p.recorded.script
  ) config.environment.systemPackages;
  packages = map (p: p.name) (config.systemd.packages ++ config.environment.systemPackages);
}
