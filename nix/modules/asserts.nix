# The rules as assertions and warnings, with the codes and reasons of `glm53ctl config check`.
{ config, lib, ... }:
let
  cfg = config.services.glm53;
  document = lib.importJSON ./schema.json;
  judge = import ./rules { inherit lib document; };

  # A credential answers the rules about a missing key. The store of systemd is not readable here;
  # who relies on it names the file in `credentials`.
  present = lib.optional (cfg.credentials.apiKey or null != null) "api-key";

  sentence =
    finding:
    "services.glm53.${finding.path}: ${finding.code}: ${finding.message}"
    + lib.optionalString (finding.fix != "") " ${finding.fix}";

  ofSeverity = severity: map sentence (lib.filter (f: f.severity == severity) cfg.findings);
in
{
  config = lib.mkIf cfg.enable {
    services.glm53.findings = judge {
      inherit (cfg) settings effective rank;
      credentials = present;
    };

    assertions = map (message: {
      assertion = false;
      inherit message;
    }) (ofSeverity "fail");

    warnings = ofSeverity "warn";
  };
}
