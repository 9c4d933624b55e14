# engine.extra_args as vLLM's parser reads them: glm53ctl/config/argv.py.
{ lib }:
rec {
  isOption = word: builtins.match "-[^0-9].*" word != null;

  # `--kv_cache_dtype` and `--speculative-config.method` as the option that they mean.
  fullName =
    word:
    let
      option = lib.head (lib.splitString "." word);
    in
    if lib.hasPrefix "--" word then lib.replaceStrings [ "_" ] [ "-" ] option else option;

  # Whether a flag is one of these options; a beginning stands for the whole.
  means =
    options: flag:
    let
      whole = lib.hasPrefix "--" flag.name && lib.stringLength flag.name > 3;
    in
    lib.any (option: option == flag.name || (whole && lib.hasPrefix flag.name option)) options;

  # Everything that was written for a flag.
  text = flag: lib.concatStringsSep " " flag.words;

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
