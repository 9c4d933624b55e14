# Wheels of a lock -> a virtual environment, as pip makes it on DGX OS, with its binaries told where
# their libraries are.
#
# One derivation and not one a wheel: NVIDIA's wheels share directories (nvidia/cu13), and their
# libraries and compilers find each other relative to where they lie.
{
  lib,
  stdenv,
  python312,
  fetchPypi,
  fetchurl,
  linkFarm,
  autoPatchelfHook,
  zlib,
}:
{
  pname,
  version,
  # What ../lib/wheels.nix reads.
  wheels,
  python ? python312,
  # Wheels that the registry does not have: package name -> the folder on the web that does.
  elsewhere ? { },
  # Folders with wheels that are built here.
  own ? [ ],
  buildInputs ? [ ],
  passthru ? { },
  ...
}@arguments:
let
  fetch =
    w:
    if elsewhere ? ${w.pname} then
      fetchurl {
        name = w.file;
        url = "${elsewhere.${w.pname}}/${lib.escapeURL w.file}";
        inherit (w) sha256;
      }
    else
      fetchPypi {
        inherit (w)
          pname
          version
          python
          abi
          platform
          sha256
          ;
        dist = w.python;
        format = "wheel";
      };

  # pip goes by file names.
  folder = linkFarm "${pname}-wheels" (
    map (w: {
      name = w.file;
      path = fetch w;
    }) wheels
  );
  all = lib.concatMapStringsSep " " (place: "${place}/*.whl") ([ folder ] ++ own);
in
stdenv.mkDerivation (
  removeAttrs arguments [
    "wheels"
    "python"
    "elsewhere"
    "own"
  ]
  // {
    dontUnpack = true;
    dontStrip = true;

    nativeBuildInputs = [
      autoPatchelfHook
      python312.pkgs.pip
    ];

    buildInputs = [
      stdenv.cc.cc.lib
      zlib
    ]
    ++ buildInputs;

    installPhase = ''
      runHook preInstall
      ${python}/bin/python -m venv --without-pip $out
      pip --python $out/bin/python install \
        --no-index --no-deps --no-cache-dir --disable-pip-version-check ${all}
      runHook postInstall
    '';

    passthru = {
      inherit wheels folder;
      site = python.sitePackages;
      # Bytes to download.
      size = lib.foldl' (sum: w: sum + w.size) 0 wheels;
    }
    // passthru;
  }
)
