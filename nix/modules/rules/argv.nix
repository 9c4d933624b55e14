# engine.extra_args as vLLM's parser reads them: glm53ctl/config/argv.py.
{ lib }:
rec {
  isOption = word: builtins.match "-[^0-9].*" word != null;

  # `--kv_cache_dtype` and `--speculative-config.method` as the option that they mean.
  fullName =
    word:
    if lib.hasPrefix "--" word then
      "--"
      + lib.replaceStrings [ "_" ] [ "-" ] (lib.head (lib.splitString "." (lib.removePrefix "--" word)))
    else
      word;

  # Words as options with their values (`--x y`, `--x=y`, `--x a b c`).
  flagsOf =
    words:
    let
      begin =
        word:
        let
          parts = lib.splitString "=" word;
          values = lib.tail parts;
        in
        {
          name = fullName (lib.head parts);
          values = lib.optional (values != [ ]) (lib.concatStringsSep "=" values);
          words = [ word ];
        };
      step =
        found: word:
        if isOption word then
          found ++ [ (begin word) ]
        else if found == [ ] then
          [
            {
              name = word;
              values = [ ];
              words = [ word ];
            }
          ]
        else
          lib.init found
          ++ [
            (
              let
                last = lib.last found;
              in
              last
              // {
                values = last.values ++ [ word ];
                words = last.words ++ [ word ];
              }
            )
          ];
    in
    lib.foldl' step [ ] words;
}
