{ lib }:
{
  jsonSchema = import ./json-schema.nix { inherit lib; };
  readUnits = import ./units.nix { inherit lib; };
  readWheels = import ./wheels.nix { inherit lib; };
}
