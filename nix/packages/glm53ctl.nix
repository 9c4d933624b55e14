# The control program, in an environment of its own: nothing of the engine's is in it.
{
  lib,
  stdenv,
  callPackage,
  runCommand,
  python312,
}:
let
  inherit (lib) fileset;
  root = ../..;
  inherit (lib.importTOML (root + "/pyproject.toml")) project;
  inherit (python312.pkgs) sdnotify;
  site = python312.sitePackages;

  program = python312.pkgs.buildPythonPackage {
    pname = project.name;
    inherit (project) version;
    pyproject = true;
    src = fileset.toSource {
      inherit root;
      fileset = fileset.unions [
        (root + "/pyproject.toml")
        (root + "/README.md")
        (root + "/LICENSE")
        (fileset.fileFilter (file: !file.hasExt "pyc") (root + "/glm53ctl"))
      ];
    };
    build-system = [ python312.pkgs.setuptools ];
    # They are in the environment below.
    dontCheckRuntimeDeps = true;
  };

  environment = callPackage ./virtualenv.nix { } {
    pname = "glm53ctl-environment";
    inherit (project) version;
    wheels = (import ../lib { inherit lib; }).readWheels (
      builtins.readFile (root + "/lock/tool-${stdenv.hostPlatform.parsed.cpu.name}.wheels")
    );
    own = [ program.dist ];

    # The registry has no wheel of it.
    postInstall = ''
      cp -r ${sdnotify}/${site}/sdnotify* $out/${site}/
    '';

    meta.license = lib.licenses.asl20;
  };
in
# Its own command alone, as the environment has those of all its packages.
runCommand "${project.name}-${project.version}"
  {
    passthru = { inherit environment program; };
    meta = {
      inherit (project) description;
      license = lib.licenses.asl20;
      mainProgram = project.name;
      platforms = lib.platforms.linux;
    };
  }
  ''
    mkdir -p $out/bin
    ln -s ${environment}/bin/glm53ctl $out/bin/
    $out/bin/glm53ctl --help > /dev/null
  ''
