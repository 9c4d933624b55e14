# Checkpoint and draft: fetched, verified, offered to the worker. The target wants the unit, which has
# nothing to do where settings.weights.source is local.
{ config, lib, ... }:
let
  cfg = config.services.glm53;
in
{
  imports = [ ./core.nix ];

  options.services.glm53.weights.scrub = lib.mkOption {
    type = lib.types.bool;
    default = cfg.effective.weights.source == "hub";
    defaultText = lib.literalExpression ''settings.weights.source == "hub"'';
    description = "Whether every byte is read and verified again once a month.";
  };

  config = lib.mkIf cfg.enable {
    services.glm53.unwanted = lib.optional (!cfg.weights.scrub) "glm53-weights-scrub.timer";

    # A restart returns when the weights are verified, which may take hours, and on a worker not before
    # the head was switched as well: `nixos-rebuild switch` would wait for itself. `nix run .#deploy`
    # restarts it on both, without waiting.
    systemd.services.glm53-weights.restartIfChanged = false;

    # It reads every byte and ends: a switch that comes in between would wait for it, for hours.
    systemd.services.glm53-weights-scrub.restartIfChanged = false;
  };
}
