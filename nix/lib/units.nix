# Reads services/: which units there are, and what they are wanted by.
#
# The files are the source of the units, here as on DGX OS. NixOS ignores [Install], so what stands
# there is read and said in its own way.
{ lib }:
services:
let
  suffixes = [
    "service"
    "socket"
    "path"
    "timer"
    "target"
  ];
  suffixOf = file: lib.last (lib.splitString "." file);
  files = lib.filter (file: lib.elem (suffixOf file) suffixes) (
    lib.attrNames (builtins.readDir services)
  );

  wantedBy =
    text:
    let
      lines = lib.splitString "\n" text;
      values = map (lib.removePrefix "WantedBy=") (lib.filter (lib.hasPrefix "WantedBy=") lines);
    in
    lib.concatMap (value: lib.filter (word: word != "") (lib.splitString " " value)) values;

  unit =
    file:
    let
      text = builtins.readFile (services + "/${file}");
    in
    {
      inherit file text;
      kind = suffixOf file;
      name = lib.removeSuffix ".${suffixOf file}" file;
      wantedBy = wantedBy text;
    };
in
map unit files
