{ lib, owned }:
let
  inherit (import ./argv.nix { inherit lib; }) flagsOf means text;
  inherit (import ./common.nix { inherit lib; }) onCuda;

  flags = config: flagsOf config.engine.extra_args;
  names = config: lib.attrNames config.engine.extra_env;
  firstWord = flag: lib.head (lib.splitString "=" (lib.head flag.words));

  # The owned flag that a word means, as the engine's parser would take it: `-n2` for `-n`, `--no-x`
  # for `--x`, an abbreviation for the whole word. null: none.
  ownedFlag =
    word:
    let
      bare = lib.head (lib.splitString "." word);
      short = lib.head (builtins.match "(-[A-Za-z]+)[0-9]*" bare);
      long = lib.replaceStrings [ "_" ] [ "-" ] bare;
      positive = "--" + lib.removePrefix "--no-" long;
      longer = lib.filter (lib.hasPrefix long) owned.flags;
    in
    if builtins.match "--?[A-Za-z].*" word == null then
      null
    else if !lib.hasPrefix "--" bare then
      (if builtins.match "-[A-Za-z]+[0-9]*" bare != null && lib.elem short owned.flags then short else null)
    else if lib.elem long owned.flags then
      long
    else if lib.elem positive owned.flags then
      positive
    else if longer != [ ] then
      lib.head longer
    else
      null;

  namesSecret =
    name:
    let
      upper = lib.toUpper name;
    in
    builtins.match ".*(TOKEN|(SECRET|PASSW(OR)?D|API_?KEY|CREDENTIAL)S?)(_FILE)?" upper != null
    || builtins.match ".*(SECRET|ACCESS|PRIVATE|SIGNING|ENCRYPTION|MASTER|AUTH)_?KEY" upper != null
    || lib.hasSuffix "PASSPHRASE" upper
    || builtins.match "[A-Z][A-Z0-9_]*_KEY" name != null;
in
{
  moe-marlin =
    config:
    let
      inKernels =
        flag:
        builtins.match ".*moe[-_]backend[^a-z0-9_]+marlin([^a-z0-9_].*)?" (lib.toLower (text flag)) != null;
      asked =
        flag:
        (means [ "--moe-backend" ] flag && lib.elem "marlin" (map lib.toLower flag.values))
        || (means [ "--kernel-config" ] flag && inKernels flag);
    in
    map (_: "--moe-backend marlin") (lib.filter asked (flags config));

  no-warmup =
    config:
    let
      off = flag: builtins.match ".*jit.warmup[^a-z0-9_]+false.*" (lib.toLower (text flag)) != null;
    in
    lib.optionals (onCuda config) (
      lib.concatMap (
        flag: lib.optional (means [ "--kernel-config" ] flag && off flag) "enable_jit_warmup is false"
      ) (flags config)
    );

  key-in-argv =
    config:
    lib.concatMap (
      flag: lib.optional (lib.hasPrefix "--api-k" flag.name) "--api-key among the arguments"
    ) (flags config);

  owned-flag =
    config:
    lib.concatMap (
      flag:
      let
        found = ownedFlag (firstWord flag);
      in
      lib.optional (found != null && !lib.elem found owned.elsewhere) found
    ) (flags config);

  loose-words =
    config:
    let
      words = config.engine.extra_args;
      several = flag: builtins.match ".*[[:space:]].*" (firstWord flag) != null;
    in
    lib.optional (
      words != [ ] && !lib.hasPrefix "-" (lib.head words)
    ) "the first item is no option"
    ++ map (flag: "the item that starts with ${lib.head (lib.splitString " " (firstWord flag))} holds several words") (
      lib.filter several (flags config)
    );

  owned-env =
    config:
    lib.filter (
      name: lib.elem name owned.moreEnv || lib.elem name owned.env || lib.hasPrefix "GLM53_" name
    ) (names config);

  secret-env =
    config: lib.filter (name: namesSecret name && !lib.elem name owned.env) (names config);

  odd-env =
    config:
    map (_: "a name that no environment can hold") (
      lib.filter (name: builtins.match "[A-Za-z_][A-Za-z0-9_]*" name == null) (names config)
    );

  dev-mode =
    config:
    lib.optional (
      !lib.elem (config.engine.extra_env.VLLM_SERVER_DEV_MODE or "0") [
        ""
        "0"
      ]
    ) "VLLM_SERVER_DEV_MODE";
}
