# The rules of glm53ctl/config/rules, at evaluation.
#
# Codes, reasons and ways out come from there (schema.json); here are the predicates alone, under
# the same names, one file for each of there. tests/nix compares the two on every case.
{ lib, document }:
let
  predicates = lib.mergeAttrsList (
    map (file: import file { inherit lib; owned = document.owned; }) [
      ./pair.nix
      ./engine.nix
      ./speculation.nix
      ./passthrough.nix
      ./clients.nix
      ./supervision.nix
    ]
  );

  # A rule that is not known here is for the program, which judges the file while it is built.
  known = lib.filterAttrs (name: _: document.rules ? ${name}) predicates;

  unknown = import ./unknown.nix { inherit lib; } document.schema;
in
{
  settings,
  effective,
  rank,
  credentials,
}:
let
  ofRule =
    name: broken:
    let
      rule = document.rules.${name};
    in
    lib.optionals (!lib.elem rule.waivedBy credentials) (
      map (what: {
        rule = name;
        inherit (rule) code severity fix;
        path = "settings.${rule.path}";
        message = "${what}: ${rule.reason}";
      }) (broken effective)
    );

  own = name: code: path: message: fix: {
    rule = name;
    severity = "fail";
    inherit
      code
      path
      message
      fix
      ;
  };

  count = lib.length effective.nodes;

  missing = lib.optional (count == 0) (
    own "nodes" "CFG_MISSING" "settings.nodes" "nodes is missing."
      "List both machines, head first, with `name` and `address` (the fabric's)."
  );

  # A check on a list of submodules is lost by the module system, so it is made here.
  most = document.schema.properties.nodes.maxItems;
  many = lib.optional (count > most) (
    own "nodes" "CFG_RANGE" "settings.nodes" "`nodes` lists ${toString count}, at most ${toString most}."
      "The engine's ranks are one for each node."
  );

  beyond = lib.optional (count > 0 && rank >= count) (
    own "rank" "RANK_UNKNOWN" "rank" "there is no rank ${toString rank}: `nodes` lists ${toString count}."
      "Use a rank from 0 to ${toString (count - 1)}."
  );

  strange = map (
    key:
    own "unknown-key" "CFG_UNKNOWN_KEY" "settings.${key.path}" "There is no setting ${key.path}." (
      if key.nearest == null then "Remove it." else "Did you mean ${key.nearest}?"
    )
  ) (unknown settings);
in
missing
++ many
++ beyond
++ strange
# What is judged below needs nodes to be judged by, and no more than there can be.
++ lib.optionals (count > 0 && many == [ ]) (lib.concatLists (lib.mapAttrsToList ofRule known))
