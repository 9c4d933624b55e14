{ lib, ... }:
let
  inherit (import ./common.nix { inherit lib; }) onCuda;

  bare = host: lib.removePrefix "[" (lib.removeSuffix "]" host);
  isWildcard =
    host:
    lib.elem (bare host) [
      ""
      "*"
    ]
    || builtins.match "(0+|0x0+)(\\.(0+|0x0+)){0,3}" (lib.toLower (bare host)) != null
    || builtins.match "[0:]*:ffff:0+((\\.0+){3}|:0+)" (lib.toLower (bare host)) != null
    || builtins.match "[0:]*::?[0:]*" (bare host) != null;
  isLoopback =
    host:
    host == "localhost"
    || builtins.match "127(\\.[0-9]+){3}" (bare host) != null
    || builtins.match "[0:]*:0*1" (bare host) != null;

  withoutKey = config: config.api.key_file == null;
  place = config: "api.host ${if config.api.host == "" then "(empty)" else config.api.host}";
  port = config: toString config.api.port;
in
{
  wildcard-no-key =
    config:
    lib.optional (
      isWildcard config.api.host && withoutKey config && !config.api.open
    ) "${place config} with port ${port config} and no key";

  lan-no-key =
    config:
    let
      reachable = !isWildcard config.api.host && !isLoopback config.api.host;
    in
    lib.optional (
      reachable && withoutKey config && !config.api.open
    ) "${place config} with port ${port config} and no key";

  open =
    config:
    lib.optional (
      config.api.open && withoutKey config && !isLoopback config.api.host
    ) "api.open with ${place config}, port ${port config}";

  loopback =
    config: lib.optional (isLoopback config.api.host && withoutKey config) "${place config} and no key";

  no-host =
    config:
    lib.optional (lib.elem config.api.host [
      ""
      "*"
    ]) "api.host is ${if config.api.host == "" then "empty" else config.api.host}";

  host-in-brackets =
    config: lib.optional (lib.hasInfix "[" config.api.host) "api.host ${config.api.host}";

  media-profiling =
    config:
    lib.optional (
      onCuda config && config.media.enable && !config.media.skip_profiling
    ) "media.skip_profiling (SKIP_MM_PROFILING) is off";

  media-budget =
    config:
    let
      inherit (config.media) images image_tokens request_image_tokens;
      window = config.serve.max_model_len;
      each = images * image_tokens;
      tokens = if request_image_tokens == null then each else lib.min each request_image_tokens;
    in
    lib.optional (
      config.media.enable && tokens * 4 > window
    ) "${toString images} images of up to ${toString tokens} tokens in all in a window of ${toString window}";

  media-hosts =
    config:
    lib.optional (
      config.media.enable && config.media.urls && config.media.url_domains == [ ]
    ) "media.urls is on and media.url_domains is empty";
}
