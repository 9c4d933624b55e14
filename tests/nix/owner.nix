# The owner's values as JSON can say them, from the repository and from the template.
{ lib }:
assert builtins.pathExists (lib + "/lib");
{
  repository = import ../../nix/hosts/owner.nix;
  template = import ../../nix/templates/default/owner.nix;
}
