{ lib, ... }:
let
  inherit (import ./argv.nix { inherit lib; }) flagsOf means text;
  inherit (import ./common.nix { inherit lib; }) specMethod;

  # What DFlash2 was trained for.
  trained = 7;
  triton = "TRITON_ATTN";
in
{
  draft-triton =
    config:
    let
      backend = config.spec.draft_attention;
    in
    lib.optional (backend != null && lib.toUpper backend == triton) "${triton} for the draft";

  engine-triton =
    config:
    lib.concatMap (
      flag:
      lib.optional (
        means [
          "--attention-backend"
          "--attention-config"
          "-ac"
        ] flag
        && lib.hasInfix triton (lib.toUpper (text flag))
      ) "${triton} for target and draft"
    ) (flagsOf config.engine.extra_args);

  env-triton =
    config:
    let
      asks = name: value: lib.hasInfix "ATTENTION" name && lib.toUpper value == triton;
    in
    map (name: "${name} asks for ${triton}, the draft included") (
      lib.attrNames (lib.filterAttrs asks config.engine.extra_env)
    );

  draft-kv =
    config:
    lib.optional (
      config.spec.draft_kv_dtype != "auto"
    ) "spec.draft_kv_dtype is ${config.spec.draft_kv_dtype}, only auto works";

  draft-tokens =
    config:
    let
      inherit (config.spec) method tokens force_tokens;
    in
    lib.optional (
      method == "dflash" && tokens != null && tokens != trained && !force_tokens
    ) "spec.tokens is ${toString tokens} for dflash";

  draft-block =
    config:
    let
      inherit (config.spec) method tokens force_tokens;
    in
    lib.optional (
      method == "dflash" && force_tokens && tokens != null && tokens > trained
    ) "spec.tokens is ${toString tokens} for dflash";

  draft-parallel =
    config:
    let
      size = config.spec.draft_tensor_parallel_size;
    in
    lib.optional (size != null && size != lib.length config.nodes)
      "spec.draft_tensor_parallel_size is ${toString size} with ${toString (lib.length config.nodes)} nodes";

  draft-licence =
    config:
    lib.optional (
      config.spec.method == "dflash" && specMethod config != "dflash"
    ) "CC-BY-NC-ND-4.0 is not accepted, so drafting falls back to MTP";
}
