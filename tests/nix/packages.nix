# What our packages ask of nixpkgs, recorded by the stand-ins: nothing is built.
{ lib }:
let
  library = import (lib + "/lib");
  of = system: import ./pkgs.nix { lib = library; inherit system; };
  pkgs = of "aarch64-linux";
  inherit (pkgs) glm53;
  cpu = (of "x86_64-linux").glm53.engine-cpu;
  # An app is its program's path; here the program's text.
  recording = pkgs // {
    writeShellApplication = given: { inherit (given) text; };
    lib = library // {
      getExe = package: package.text or (library.getExe package);
    };
  };
  unfree = import ../../nix/packages/unfree.nix { lib = library; };
  meta = package: {
    license = map (one: one.free or true) (library.toList package.meta.license);
    unfree = unfree package;
    platforms = package.meta.platforms;
  };
  described = {
    inherit (glm53)
      engine
      engine-cpu
      environment
      exllamav3-ext
      glm53ctl
      overlay
      units
      ;
  };
in
{
  wheels = glm53.environment.wheels;
  inherit (glm53.environment) size cudaHome cudaArch;
  names = library.mapAttrs (_: package: package.name) described;
  meta = library.mapAttrs (_: meta) described;
  scripts = {
    environment = glm53.environment.recorded.installPhase + glm53.environment.recorded.postInstall;
    engine = glm53.engine.recorded.script;
    program = glm53.glm53ctl.recorded.script + glm53.glm53ctl.environment.recorded.postInstall;
    cpu = cpu.recorded.installPhase + cpu.recorded.installCheckPhase;
    tag = cpu.tag.recorded.script;
    ext = glm53.exllamav3-ext.recorded.buildPhase + glm53.exllamav3-ext.recorded.installCheckPhase;
    units = glm53.units.recorded.script;
    deploy = (import ../../nix/apps.nix { pkgs = recording; }).deploy.program;
    imports = glm53.engine.tests.imports.recorded.script;
  };
  environment = { inherit (glm53.environment.recorded) appendRunpaths autoPatchelfIgnoreMissingDeps; };
  # The variables of the build: texts among the attributes, and `env`.
  ext =
    library.filterAttrs (_: library.isString) glm53.exllamav3-ext.recorded
    // glm53.exllamav3-ext.recorded.env;
  cpu = {
    inherit (cpu) wheels site size;
    fetched = map (entry: entry.path.recorded) cpu.folder.recorded.entries;
  };
  tools = library.genAttrs [ "aarch64-linux" "x86_64-linux" ] (
    system: map (wheel: wheel.file) (of system).glm53.glm53ctl.environment.wheels
  );
  portable = library.mapAttrs (_: package: package.name) {
    inherit ((of "x86_64-linux").glm53) glm53ctl units;
  };
}
