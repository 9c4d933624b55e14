# A stand-in for nixpkgs: packages that are names, and functions that record what they were given.
{
  lib,
  system ? "aarch64-linux",
  # Where packages are, by name, instead of in a store.
  places ? { },
  # As nixpkgs takes them; without any, our packages are there all the same.
  overlays ? null,
}:
let
  digest = name: lib.substring 0 32 (builtins.hashString "sha256" name);

  # A derivation as far as types and string interpolation look. The store path is made up.
  package =
    name: extra:
    let
      pname = extra.pname or (builtins.parseDrvName name).name;
    in
    {
      type = "derivation";
      inherit name system;
      inherit pname;
      outPath = places.${pname} or "${builtins.storeDir}/${digest name}-${name}";
      drvPath = "${builtins.storeDir}/${digest name}-${name}.drv";
      meta = { };
    }
    // extra;

  # A build: whatever it was given, without the functions.
  build =
    kind: name: arguments:
    package name (
      {
        recorded = {
          inherit kind;
        }
        // arguments;
        meta = arguments.env.meta or { };
      }
    );

  derivation =
    attrs:
    let
      given = if lib.isFunction attrs then attrs (given // { finalPackage = result; }) else attrs;
      name = given.name or "${given.pname}-${given.version}";
      result = package name (
        {
          recorded = removeAttrs given [ "passthru" ];
          pname = given.pname or (builtins.parseDrvName name).name;
          version = given.version or "";
          meta = given.meta or { };
        }
        // (given.passthru or { })
      );
    in
    result;

  names = lib.genAttrs [
    "autoPatchelfHook"
    "bash"
    "coreutils"
    "ethtool"
    "findutils"
    "git"
    "glib"
    "gnugrep"
    "gnumake"
    "gnused"
    "gobject-introspection"
    "iproute2"
    "iputils"
    "makeWrapper"
    "ncurses"
    "nixfmt"
    "nixos-rebuild-ng"
    "numactl"
    "openssh"
    "pciutils"
    "rdma-core"
    "shellcheck"
    "systemd"
    "util-linux"
    "which"
    "xz"
    "zlib"
  ] (name: package name { });

  pythonPackages = lib.genAttrs [
    "pip"
    "pydbus"
    "sdnotify"
    "setuptools"
  ] (name: package "python-${name}" { });

  python = version: package "python3-${version}" {
    pythonVersion = version;
    sitePackages = "lib/python${version}/site-packages";
    withPackages = choose: package "python3-env" { packages = choose pythonPackages; };
    pkgs = pythonPackages // {
      buildPythonPackage = attrs: derivation attrs // { dist = derivation (attrs // { pname = "dist"; }); };
    };
  };

  self = names // {
    inherit lib system;
    config = { };
    stdenv = {
      mkDerivation = derivation;
      cc = package "gcc-wrapper" { cc = package "gcc" { lib = package "gcc-lib" { }; }; };
      buildPlatform.canExecute = _: true;
      hostPlatform = {
        inherit system;
        parsed.cpu.name = lib.head (lib.splitString "-" system);
        isAarch64 = lib.hasPrefix "aarch64" system;
      };
    };
    stdenvNoCC = self.stdenv;
    python3 = python "3.14";
    python311 = python "3.11";
    python312 = python "3.12";
    cudaPackages.cuda_cuobjdump = package "cuda_cuobjdump" { };

    fetchPypi = given: build "fetchPypi" "${given.pname}-${given.version}.whl" given;
    fetchurl = given: build "fetchurl" given.name given;
    linkFarm = name: entries: build "linkFarm" name { inherit entries; };
    runCommand = name: env: script: build "runCommand" name { inherit env script; } // (env.passthru or { });
    runCommandLocal = self.runCommand;
    testers.runNixOSTest =
      file:
      let
        test = import file {
          inherit lib;
          hostPkgs = self;
        };
      in
      build "runNixOSTest" "vm-test-run-${test.name}" { inherit (test) testScript; };
    writeText = name: text: build "writeText" name { inherit text; };
    writeShellApplication =
      given: build "writeShellApplication" given.name given // { meta.mainProgram = given.name; };
    mkShell = given: build "mkShell" "shell" given;
    mkShellNoCC = self.mkShell;

    # pkgs/pkgs-lib/formats.nix
    formats.yaml = _: {
      type =
        let
          value =
            lib.types.nullOr (
              lib.types.oneOf [
                lib.types.bool
                lib.types.int
                lib.types.float
                lib.types.str
                lib.types.path
                (lib.types.attrsOf value)
                (lib.types.listOf value)
              ]
            )
            // {
              description = "YAML 1.1 value";
            };
        in
        value;
      generate = name: value: build "yaml" name { text = builtins.toJSON value; };
    };

    newScope = extra: file: self.callPackageWith (self // extra) file;
    callPackageWith =
      scope: file: arguments:
      let
        function = if lib.isFunction file then file else import file;
      in
      function (lib.intersectAttrs (lib.functionArgs function) scope // arguments);
  }
  // (
    if overlays == null then
      { glm53 = import ../../nix/packages { pkgs = self; }; }
    else
      lib.composeManyExtensions overlays self { }
  );
in
self
