# Reads lock/*.wheels: one wheel a line, `file sha256 size`.
#
# A file name says everything about a wheel that fetchPypi asks for
# (name-version-python-abi-platform.whl).
{ lib }:
text:
let
  parse =
    line:
    let
      words = lib.splitString " " line;
      file = lib.head words;
      parts = lib.splitString "-" (lib.removeSuffix ".whl" file);
      part = lib.elemAt parts;
    in
    assert lib.assertMsg (lib.length words == 3 && lib.length parts == 5) "not a wheel: ${line}";
    {
      inherit file;
      pname = part 0;
      version = part 1;
      python = part 2;
      abi = part 3;
      platform = part 4;
      sha256 = lib.elemAt words 1;
      size = lib.toIntBase10 (lib.elemAt words 2);
    };
in
map parse (lib.filter (line: line != "") (lib.splitString "\n" text))
