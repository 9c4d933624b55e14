# Evaluates cases: JSON { name: [modules as attributes] }, each on top of nix/modules.
#
# `only` evaluates one and lets its error through; otherwise an error is an entry that says so.
{
  lib,
  cases,
  only ? null,
}:
let
  library = import (lib + "/lib");
  evaluate = import ./evaluate.nix { lib = library; };
  all = library.mapAttrs (_: modules: evaluate ([ ../../nix/modules ] ++ modules)) (
    library.importJSON cases
  );
  safe =
    value:
    let
      tried = builtins.tryEval (builtins.deepSeq value value);
    in
    if tried.success then tried.value else { thrown = true; };
in
if only != null then all.${only} else library.mapAttrs (_: safe) all
