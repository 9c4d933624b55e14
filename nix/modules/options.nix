{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;

  yaml = pkgs.formats.yaml { };
  document = lib.importJSON ./schema.json;
  schema = (import ../lib { inherit lib; }).jsonSchema yaml.type document.schema;
in
{
  options.services.glm53 = {
    enable = lib.mkEnableOption "this machine's half of a GLM-5.3-Flash server on two DGX Sparks";

    rank = mkOption {
      type = types.ints.between 0 3;
      example = 1;
      description = ''
        Place of this machine in `settings.nodes`. 0 is the head, which serves the API. It is the
        only thing that must differ between the machines.
      '';
    };

    package = lib.mkPackageOption pkgs [ "glm53" "glm53ctl" ] { };

    engine = lib.mkPackageOption pkgs [ "glm53" "engine" ] {
      extraDescription = ''
        A Python environment with `bin/vllm` and the overlay. `passthru.cudaHome`, if there is one,
        becomes CUDA_HOME: FlashInfer compiles kernels while the engine starts.
      '';
    };

    units = lib.mkPackageOption pkgs [ "glm53" "units" ] {
      extraDescription = "The unit files of services/, which the other options extend by drop-ins.";
    };

    settings = mkOption {
      inherit (schema) type;
      default = { };
      example = lib.literalExpression ''
        {
          nodes = [
            { name = "spark-head"; address = "10.0.9.1"; }
            { name = "spark-worker"; address = "10.0.9.2"; }
          ];
          licenses.accept = [ "ShapleyMCG-1.0" ];
        }
      '';
      description = ''
        /etc/glm53/config.yaml, the same on every machine: see docs/configuration.md. What is left
        out (null) is decided by the profile, then by the default.
      '';
    };

    # --- for the files of this folder -------------------------------------------------------------

    effective = mkOption {
      type = types.raw;
      internal = true;
      readOnly = true;
      description = "All settings as the program will see them: file, profile, default.";
    };

    configFile = mkOption {
      type = types.path;
      internal = true;
      readOnly = true;
      description = "The rendered configuration.";
    };

    closure = mkOption {
      type = types.str;
      internal = true;
      readOnly = true;
      # Not the whole system, which differs by its host name.
      default = builtins.hashString "sha256" (
        builtins.unsafeDiscardStringContext (
          let
            cfg = config.services.glm53;
          in
          "${cfg.package} ${cfg.engine} ${cfg.units}"
        )
      );
      description = "What both halves must have alike: GLM53_CLOSURE.";
    };

    findings = mkOption {
      type = types.listOf types.raw;
      internal = true;
      default = [ ];
      description = "What the rules say: rule, code, severity, path and message of each.";
    };

    unwanted = mkOption {
      type = types.listOf types.str;
      internal = true;
      default = [ ];
      description = "Unit files that this machine has but does not start.";
    };
  };

  config.services.glm53.effective =
    let
      cfg = config.services.glm53;
      merge = lib.recursiveUpdate;
      # null is left out, in sections and in nodes.
      said = import ./said.nix { inherit lib; } cfg.settings;
      profile = document.profiles.${said.profile or schema.defaults.profile};
      all = merge (merge schema.defaults profile) said;
    in
    all
    // {
      nodes = map (node: schema.nodeDefaults // node) (if all.nodes == null then [ ] else all.nodes);
    };
}
