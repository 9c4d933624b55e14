# The vLLM plugin, as a wheel for the engine's environment.
{ lib, python312 }:
let
  source = ../../overlay;
  inherit (lib.importTOML (source + "/pyproject.toml")) project;
  version = lib.head (
    builtins.match ".*__version__ = \"([^\"]+)\".*" (
      builtins.readFile (source + "/glm53_overlay/__init__.py")
    )
  );
in
python312.pkgs.buildPythonPackage {
  pname = project.name;
  inherit version;
  pyproject = true;
  src = lib.fileset.toSource {
    root = source;
    fileset = lib.fileset.fileFilter (file: !file.hasExt "pyc") source;
  };
  build-system = [ python312.pkgs.setuptools ];

  # vLLM is in the environment that it is installed into.
  dontCheckRuntimeDeps = true;

  meta = {
    inherit (project) description;
    license = lib.licenses.asl20;
    platforms = lib.platforms.linux;
  };
}
