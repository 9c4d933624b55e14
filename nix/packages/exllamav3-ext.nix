# exllamav3's kernels, compiled once for GB10. No JIT of them on the appliance.
{
  lib,
  stdenv,
  cudaPackages,
  which,
  environment,
}:
let
  inherit (environment) cudaHome cudaArch site;
  package = "${environment}/${site}/exllamav3";
  sm = "sm_" + lib.replaceStrings [ "." ] [ "" ] cudaArch;
in
stdenv.mkDerivation {
  pname = "exllamav3-ext";
  version = environment.exllamav3Version;

  dontUnpack = true;
  dontStrip = true;

  nativeBuildInputs = [
    environment # python, ninja
    which
  ];

  env = {
    CUDA_HOME = cudaHome;
    TORCH_CUDA_ARCH_LIST = cudaArch;
    # A build that could not compress is another one than was measured.
    EXLLAMA_EXT_COMPRESS = "require";
  };

  buildPhase = ''
    runHook preBuild
    cp -r --no-preserve=mode ${package}/exllamav3_ext ${package}/util/cuda_flags.py .
    cp ${./exllamav3_ext.py} setup.py
    MAX_JOBS=$NIX_BUILD_CORES PYTHONPATH=. ${environment}/bin/python setup.py build_ext --build-lib $out/${site}
    runHook postBuild
  '';

  # The right code in it, and nothing else: PTX alone would be compiled at the first call.
  doInstallCheck = true;
  nativeInstallCheckInputs = [ cudaPackages.cuda_cuobjdump ];
  installCheckPhase = ''
    runHook preInstallCheck
    library=$(echo $out/${site}/exllamav3_ext*.so)
    cuobjdump --list-elf "$library" | sed -n 's/.*\.\(sm_[0-9a-z]*\)\.cubin/\1/p' | sort -u > archs
    [ "$(cat archs)" = ${sm} ] || { echo "built for $(cat archs), not ${sm}" >&2; exit 1; }
    runHook postInstallCheck
  '';

  meta = {
    description = "Kernels of exllamav3 for ${sm}";
    license = lib.licenses.mit;
    platforms = [ "aarch64-linux" ];
  };
}
