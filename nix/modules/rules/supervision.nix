{ lib, ... }:
let
  # toString 0.5 is 0.500000.
  number = builtins.toJSON;
in
{
  canary-window =
    config:
    lib.optional (config.canary.max_tokens >= config.serve.max_model_len)
      "${toString config.canary.max_tokens} tokens in a window of ${toString config.serve.max_model_len}";

  canary-short =
    config:
    let
      wanted = lib.max 8 (lib.stringLength config.canary.expect / 2);
    in
    lib.optional (
      config.canary.match == "contains" && config.canary.max_tokens < wanted
    ) "canary.max_tokens is ${toString config.canary.max_tokens}";

  wedge-before-silence =
    config:
    let
      wedge = config.supervise.wedge_seconds;
      silence = config.link.silence_grace_seconds;
    in
    lib.optional (
      wedge <= silence
    ) "supervise.wedge_seconds is ${number wedge}, link.silence_grace_seconds ${number silence}";

  step-before-stage =
    config:
    let
      step = config.engine.execute_timeout_seconds;
      inherit (config.supervise) limits;
      stages = [ "canary" ] ++ lib.optional config.warmup.enable "warmup";
    in
    lib.concatMap (
      stage:
      lib.optional (
        step < limits.${stage}
      ) "engine.execute_timeout_seconds is ${toString step}, supervise.limits.${stage} ${number limits.${stage}}"
    ) stages;

  backoff =
    config:
    let
      first = config.supervise.backoff_seconds;
      longest = config.supervise.backoff_max_seconds;
    in
    lib.optional (
      first > longest
    ) "supervise.backoff_seconds is ${number first}, the longest ${number longest}";

  probe-before-silence =
    config:
    let
      seconds = config.watchdog.probe_failures * config.watchdog.probe_deadline_seconds;
      silence = config.link.silence_grace_seconds;
    in
    lib.optional (
      seconds <= silence
    ) "the probes give up after ${number seconds} s, link.silence_grace_seconds is ${number silence}";

  memory-stages =
    config:
    let
      warn = config.watchdog.warn_gib;
      refuse = config.watchdog.refuse_gib;
    in
    lib.optional (refuse > warn) "watchdog.refuse_gib is ${number refuse}, watchdog.warn_gib ${number warn}";

  memory-order =
    config:
    let
      floor = config.memory.floor_gib;
      start = config.memory.start_gib;
    in
    lib.optional (
      floor >= start
    ) "memory.floor_gib is ${number floor}, memory.start_gib ${number start}";
}
