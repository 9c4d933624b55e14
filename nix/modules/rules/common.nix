# What several rules ask of a configuration.
{ lib }:
rec {
  # The CPU engine of the demo has its own limits.
  onCuda = config: config.engine.platform == "cuda";

  # DFlash2 only with its licence accepted, else MTP.
  specMethod =
    config:
    if config.spec.method == "dflash" && !lib.elem "CC-BY-NC-ND-4.0" config.licenses.accept then
      "mtp"
    else
      config.spec.method;

  # Drafted tokens a step.
  specTokens =
    config:
    let
      method = specMethod config;
    in
    if method == "none" then
      0
    else if config.spec.tokens != null && method == config.spec.method then
      config.spec.tokens
    else
      {
        dflash = 7;
        mtp = 2;
      }
      .${method};
}
