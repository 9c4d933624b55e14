{ lib, ... }:
let
  inherit (import ./argv.nix { inherit lib; }) flagsOf means text;
  inherit (import ./common.nix { inherit lib; }) onCuda specTokens;

  hiddenSize = 4096;
  lastLayer = 45;
  number = builtins.toJSON;
in
{
  target-kv =
    config:
    lib.optional (
      onCuda config && config.kv.dtype != "fp8"
    ) "kv.dtype is ${config.kv.dtype}, only fp8 works";

  batched-tokens =
    config:
    lib.optional (
      config.serve.max_num_batched_tokens >= 8192
    ) "serve.max_num_batched_tokens is ${toString config.serve.max_num_batched_tokens}";

  batch-below-seqs =
    config:
    lib.optional (config.serve.max_num_batched_tokens < config.serve.max_num_seqs)
      "${toString config.serve.max_num_batched_tokens} tokens a step for ${toString config.serve.max_num_seqs} requests";

  tensor-parallel =
    config:
    let
      size = config.serve.tensor_parallel_size;
    in
    lib.optional (
      size != null && size != lib.length config.nodes
    ) "serve.tensor_parallel_size is ${toString size} with ${toString (lib.length config.nodes)} nodes";

  pipeline =
    config:
    lib.optional (
      config.serve.pipeline_parallel_size > 1
    ) "serve.pipeline_parallel_size is ${toString config.serve.pipeline_parallel_size}";

  ablit-direction =
    config:
    let
      direction = if config.ablit.direction == null then "" else config.ablit.direction;
    in
    lib.optional (
      config.ablit.enable && !lib.hasSuffix ".safetensors" direction
    ) "ablit.enable with ablit.direction ${if direction == "" then "(none)" else direction}";

  ablit-size =
    config:
    let
      size = config.ablit.hidden_size;
    in
    lib.optional (
      onCuda config && config.ablit.enable && size != hiddenSize
    ) "ablit.hidden_size is ${toString size}, the model's is ${toString hiddenSize}";

  ablit-layers =
    config:
    let
      bounds = map lib.toIntBase10 (lib.splitString "-" config.ablit.layers);
    in
    lib.optional (
      lib.head bounds > lib.last bounds || lib.last bounds > lastLayer
    ) "ablit.layers is ${config.ablit.layers}";

  utilization =
    config:
    lib.optional (onCuda config && config.kv.bytes == null && config.kv.gpu_memory_utilization > 0.86)
      "kv.gpu_memory_utilization is ${number config.kv.gpu_memory_utilization}";

  graph-sizes =
    config:
    let
      width = specTokens config + 1;
      needed = map (seqs: toString (width * seqs)) (lib.range 1 config.serve.max_num_seqs);
      isSized = means [
        "--cudagraph-capture-sizes"
        "--cuda-graph-sizes"
      ];
      # The sizes that the JSON of the compilation lists; null: none.
      inJson =
        flag:
        if
          means [
            "--compilation-config"
            "-cc"
          ] flag
        then
          builtins.match ".*cudagraph[-_]capture[-_]sizes[^a-zA-Z0-9_]+([0-9, ]*).*" (text flag)
        else
          null;
      sized = lib.filter (flag: isSized flag || inJson flag != null) (flagsOf config.engine.extra_args);
      given =
        flag:
        lib.concatMap (lib.splitString ",") (
          lib.concatMap (lib.splitString " ") (if isSized flag then flag.values else inJson flag)
        );
      missing = flag: lib.subtractLists (given flag) needed;
    in
    lib.concatMap (
      flag: lib.optional (missing flag != [ ]) "${flag.name} lacks ${lib.concatStringsSep ", " (missing flag)}"
    ) sized;
}
