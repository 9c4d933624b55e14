# The engine's Python environment: every wheel of its lock.
{
  lib,
  callPackage,
  python312,
  ncurses,
  numactl,
  rdma-core,
  xz,
}:
let
  wheels = (import ../lib { inherit lib; }).readWheels (
    builtins.readFile ../../lock/engine-cuda-aarch64.wheels
  );
  wheel = name: lib.findFirst (w: w.pname == name) (throw "the lock has no ${name}") wheels;

  nvidia = "${python312.sitePackages}/nvidia";

  environment = callPackage ./virtualenv.nix { } {
    pname = "glm53-environment";
    inherit (wheel "vllm") version;
    inherit wheels;

    buildInputs = [
      ncurses
      numactl
      rdma-core
      xz
    ];

    # What NVIDIA's wheels leave out and compilers look for: lib64, and names without a version.
    postInstall = ''
      cuda=$out/${nvidia}/cu13
      ln -s lib $cuda/lib64
      for library in $cuda/lib/lib*.so.*; do
        name=''${library##*/}
        [ -e "$cuda/lib/''${name%%.so.*}.so" ] || ln -s "$name" "$cuda/lib/''${name%%.so.*}.so"
      done
    '';

    # dlopen looks where the library that calls it was told to. The driver is found at run time; NCCL
    # opens the verbs by name and falls back to TCP in silence without them.
    appendRunpaths = [
      "/run/opengl-driver/lib"
      "${lib.getLib rdma-core}/lib"
      "${placeholder "out"}/${nvidia}/cu13/lib"
      "${placeholder "out"}/${nvidia}/cudnn/lib"
      "${placeholder "out"}/${nvidia}/nccl/lib"
    ];

    # Of the driver, and of what the appliance does not use: MPI and UCX under NVSHMEM, TBB under
    # numba, CUDA 12 under cutlass-dsl.
    autoPatchelfIgnoreMissingDeps = [
      "libcuda.so.1"
      "libnvidia-ml.so.1"
      "libcudart.so.12"
      "libnvrtc.so.12"
      "libfabric.so.1"
      "libmpi.so.40"
      "liboshmem.so.40"
      "libpmix.so.2"
      "libtbb.so.12"
      "libucp.so.0"
      "libucs.so.0"
    ];

    passthru = {
      # FlashInfer and torch compile with the toolkit of the wheels, not with a second one.
      cudaHome = "${environment}/${nvidia}/cu13";
      # GB10; the `a` is what its FP4 and block-scaled instructions need.
      cudaArch = "12.1a";
      exllamav3Version = (wheel "exllamav3").version;
    };

    meta = {
      description = "vLLM for GB10 from wheels, with the CUDA 13 parts that it compiles with";
      license = [
        lib.licenses.asl20
        lib.licenses.nvidiaCuda
      ];
      platforms = [ "aarch64-linux" ];
    };
  };
in
environment
