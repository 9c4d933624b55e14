# Unit files as NixOS writes them: nixos/lib/systemd-lib.nix, read and said in our own words.
{ lib, pkgs }:
let
  value = v: if v == true then "true" else if v == false then "false" else toString v;
  lines =
    section:
    lib.concatStrings (
      lib.concatLists (
        lib.mapAttrsToList (name: v: map (one: "${name}=${value one}\n") (lib.toList v)) section
      )
    );
  words = lib.concatStringsSep " ";

  # stage2ServiceConfig: every service has these.
  basics = [
    pkgs.coreutils
    pkgs.findutils
    pkgs.gnugrep
    pkgs.gnused
    pkgs.systemd
  ];

  head =
    def:
    "[Unit]\n"
    + lines (
      def.unitConfig
      // lib.optionalAttrs (def.after != [ ]) { After = words def.after; }
      // lib.optionalAttrs (def.before != [ ]) { Before = words def.before; }
      // lib.optionalAttrs (def.wants != [ ]) { Wants = words def.wants; }
      // lib.optionalAttrs (def.partOf != [ ]) { PartOf = words def.partOf; }
      // lib.optionalAttrs (def.description != "") { Description = def.description; }
      // lib.optionalAttrs (def.restartTriggers != [ ]) {
        X-Restart-Triggers = words (map toString def.restartTriggers);
      }
    );

  service =
    def:
    let
      path = def.path ++ basics;
      environment = {
        PATH = "${lib.makeBinPath path}:${lib.makeSearchPathOutput "bin" "sbin" path}";
        # nixos/modules/config/i18n.nix, locale.nix: systemd.globalEnvironment
        LOCALE_ARCHIVE = "/run/current-system/sw/lib/locale/locale-archive";
        TZDIR = "/etc/zoneinfo";
      }
      // def.environment;
    in
    head def
    + "\n[Service]\n"
    + lib.concatStrings (
      lib.mapAttrsToList (
        name: v: lib.optionalString (v != null) "Environment=${builtins.toJSON "${name}=${toString v}"}\n"
      ) environment
    )
    + lib.optionalString (!def.restartIfChanged) "X-RestartIfChanged=false\n"
    + lib.optionalString (!def.stopIfChanged) "X-StopIfChanged=false\n"
    + lines def.serviceConfig;

  kinds = {
    services = {
      suffix = "service";
      text = service;
    };
    sockets = {
      suffix = "socket";
      text = def: head def + "\n[Socket]\n" + lines def.socketConfig;
    };
    paths = {
      suffix = "path";
      text = def: head def + "\n[Path]\n" + lines def.pathConfig;
    };
    timers = {
      suffix = "timer";
      text = def: head def + "\n[Timer]\n" + lines def.timerConfig;
    };
    targets = {
      suffix = "target";
      text = head;
    };
  };
in
# systemd.* of a configuration -> drop-ins by unit file, and what wants each.
systemd:
lib.mergeAttrsList (
  lib.mapAttrsToList (
    kind: how:
    lib.mapAttrs' (
      name: def:
      lib.nameValuePair "${name}.${how.suffix}" {
        inherit (def) wantedBy overrideStrategy;
        text = how.text def;
      }
    ) systemd.${kind}
  ) kinds
)
