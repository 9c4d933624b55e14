# For the machine that runs Prometheus, which need not be one of the two: what to ask, and when to
# raise an alarm (monitoring/alerts.yaml).
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.glm53-monitoring;
in
{
  options.services.glm53-monitoring = {
    enable = lib.mkEnableOption "Prometheus' jobs and alert rules for a pair";

    nodes = mkOption {
      type = types.listOf types.str;
      example = [
        "spark-head:8890"
        "spark-worker:8890"
      ];
      description = "Address and page.port of every node (services.glm53.pageInterfaces opens it).";
    };

    api = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "spark-head:8888";
      description = "Address and port of the API, for the engine's own metrics. null: without them.";
    };

    apiKeyFile = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "/run/secrets/prometheus/glm53.api-key";
      description = "File with the API key, readable by Prometheus.";
    };
  };

  config = lib.mkIf cfg.enable {
    services.prometheus = {
      enable = true;
      # The build has no key, and promtool looks for the file that shall hold it.
      checkConfig = lib.mkIf (cfg.apiKeyFile != null) (lib.mkDefault "syntax-only");
      ruleFiles = [ ../../monitoring/alerts.yaml ];
      scrapeConfigs = [
        {
          job_name = "glm53";
          static_configs = [ { targets = cfg.nodes; } ];
        }
      ]
      ++ lib.optional (cfg.api != null) (
        {
          job_name = "glm53-engine";
          static_configs = [ { targets = [ cfg.api ]; } ];
        }
        // lib.optionalAttrs (cfg.apiKeyFile != null) {
          authorization.credentials_file = cfg.apiKeyFile;
        }
      );
    };
  };
}
