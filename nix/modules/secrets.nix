# Secrets by path. They reach the units as credentials: in no argument, no environment, no store.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.glm53;

  # Name of the credential in the units -> option.
  options = {
    "api-key" = "apiKey";
    "pair-token" = "pairToken";
    "hf-token" = "hfToken";
  };

  secret =
    name: what:
    mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "/run/secrets/glm53.${name}";
      description = ''
        File with ${what}, readable by root, as agenix and sops-nix leave it. null: the units look
        for `/etc/credstore/glm53.${name}` and do without it if there is none. With another path
        the file must be there when the unit starts.
      '';
    };

  stored = name: "/etc/credstore/glm53.${name}";
  named = lib.filterAttrs (name: path: path != null && path != stored name) (
    lib.mapAttrs (_: option: cfg.credentials.${option}) options
  );

  # The units say which credentials they take; the path is all that is changed.
  load =
    names: map (name: "${name}:${named.${name}}") (lib.filter (name: named ? ${name}) names);

  # Clients are served by the head alone, so the others need no key.
  ofHead = lib.optional (cfg.rank == 0) "api-key";
  dropIn = names: lib.mkIf (load names != [ ]) { serviceConfig.LoadCredential = load names; };

  isStored = path: lib.hasPrefix builtins.storeDir path;
  inStore = lib.filterAttrs (_: isStored) named;
  relative = lib.filterAttrs (_: path: !lib.hasPrefix "/" path) named;

  refuse =
    wrong: text:
    lib.mapAttrsToList (name: _: {
      assertion = false;
      message =
        "services.glm53.credentials.${options.${name}}: CFG_FORBIDDEN: "
        + lib.replaceStrings [ "\\\n" ] [ "" ] text;
    }) wrong;
in
{
  imports = [ ./core.nix ];

  options.services.glm53.credentials = {
    apiKey = secret "api-key" "the key that clients must send";
    pairToken = secret "pair-token" "the secret that both machines share (docs/owners.md makes one)";
    hfToken = secret "hf-token" "a Hub token, for weights that need one";
  };

  config = lib.mkIf cfg.enable {
    systemd.services = {
      "glm53-rank${toString cfg.rank}" = dropIn (ofHead ++ [ "pair-token" ]);
      glm53-watchdog = dropIn ofHead;
      glm53-weights = dropIn [
        "hf-token"
        "pair-token"
      ];
    };

    # Commands in an operator's shell look where the units do by themselves: `ask` finds the key.
    systemd.tmpfiles.rules = map (name: "L+ ${stored name} - - - - ${named.${name}}") (
      lib.filter (name: named ? ${name}) (
        ofHead
        ++ [
          "hf-token"
          "pair-token"
        ]
      )
    );

    assertions =
      refuse inStore ''
        the file is in the store: everybody on the machine can read it there. Give the path as text, \
        of a file outside.''
      ++ refuse relative ''
        it is no absolute path: it names the file that holds the secret, not the secret. Write the \
        secret to a file of mode 0600 and give that file's whole path.'';
  };
}
