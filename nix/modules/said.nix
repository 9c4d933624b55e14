# What an owner said: without the options that are null, and without sections that are then empty.
{ lib }:
let
  clean =
    value:
    if lib.isDerivation value then
      value
    else if lib.isAttrs value then
      lib.filterAttrs (_: v: v != null && v != { }) (lib.mapAttrs (_: clean) value)
    else if lib.isList value then
      map clean value
    else
      value;
in
clean
