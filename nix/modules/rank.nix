# The supervisor of this machine's rank, and what its engine needs to find: compilers, CUDA, the
# driver.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.services.glm53;
  inherit (cfg.engine) cudaHome;
  hasCuda = cfg.engine ? cudaHome;
  driver = "/run/opengl-driver/lib";

  # FlashInfer and Triton build kernels for this GPU alone while the engine starts.
  arch = cfg.engine.cudaArch;

  ranks = map (number: "glm53-rank${toString number}") [
    0
    1
  ];
  own = "glm53-rank${toString cfg.rank}";
in
{
  imports = [ ./core.nix ];

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = lib.elem own ranks;
        message = "services.glm53.rank: RANK_UNKNOWN: there is no services/${own}.service, so nothing would start this rank. Make it 0 on the head and 1 on the worker.";
      }
    ];

    services.glm53.unwanted = map (name: "${name}.service") (lib.remove own ranks);

    systemd.services.${own} = {
      path = [
        cfg.engine
        pkgs.stdenv.cc
        pkgs.iproute2
        pkgs.iputils
      ]
      ++ lib.optional hasCuda "${cudaHome}";

      environment = {
        CC = "${pkgs.stdenv.cc}/bin/cc";
        CXX = "${pkgs.stdenv.cc}/bin/c++";
        GLM53_CLOSURE = cfg.closure;
      }
      // lib.optionalAttrs hasCuda {
        CUDA_HOME = "${cudaHome}";
        FLASHINFER_CUDA_ARCH_LIST = arch;
        LD_LIBRARY_PATH = driver;
        LIBRARY_PATH = "${cudaHome}/lib:${driver}";
        TORCH_CUDA_ARCH_LIST = arch;
        TRITON_LIBCUDA_PATH = driver;
      };

      # A restart returns when the pair serves, and it does not serve before the other half was
      # switched as well: `nixos-rebuild switch` would wait for itself. `nix run .#deploy` restarts
      # both when both are switched.
      restartIfChanged = false;
    };

    # Without them DeviceAllow= finds no device when the unit starts. The driver's set-uid helper
    # has no effect inside the units.
    boot.kernelModules = lib.optional hasCuda "nvidia_uvm";
  };
}
