# settings -> /etc/glm53/config.yaml, judged by the program itself while it is built.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.glm53;
  said = import ./said.nix { inherit lib; } cfg.settings;
  written = (pkgs.formats.yaml { }).generate "glm53.yaml" said;

  # The rules of this folder speak at evaluation; this is the program's own last word. It has no
  # credentials there, so it is told that there will be an API key.
  judged = pkgs.runCommand "glm53.yaml" { nativeBuildInputs = [ cfg.package ]; } ''
    mkdir credentials
    ${lib.optionalString (cfg.credentials.apiKey or null != null) "touch credentials/api-key"}
    CREDENTIALS_DIRECTORY=$PWD/credentials glm53ctl config check --config ${written}
    cp ${written} $out
  '';

  # What an operator types sees the GPU and knows the closure, as the units do by their environment.
  operators =
    pkgs.runCommand "glm53ctl-operators"
      {
        nativeBuildInputs = [ pkgs.makeWrapper ];
        meta.mainProgram = "glm53ctl";
      }
      ''
        makeWrapper ${cfg.package}/bin/glm53ctl $out/bin/glm53ctl \
          --suffix LD_LIBRARY_PATH : /run/opengl-driver/lib \
          --set-default GLM53_CLOSURE ${cfg.closure}
      '';

  runs = pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform;
in
{
  config = lib.mkMerge [
    { services.glm53.configFile = if runs then judged else written; }

    (lib.mkIf cfg.enable {
      # Of this machine, so not part of what the two halves compare.
      services.glm53.settings.engine.prefix = lib.mkDefault "${cfg.engine}";

      environment.etc."glm53/config.yaml".source = cfg.configFile;
      environment.systemPackages = [ operators ];
    })
  ];
}
