# The rest of the machine, as far as the pair depends on it: swap, and closures from the other half.
{ config, lib, ... }:
let
  cfg = config.services.glm53;
  swaps = config.swapDevices != [ ] || config.zramSwap.enable;
in
{
  imports = [ ./core.nix ];

  options.services.glm53.closureKeys = lib.mkOption {
    type = lib.types.listOf lib.types.str;
    default = [ ];
    example = [ "ssh-ed25519 AAAA… root@spark-head" ];
    description = ''
      SSH keys that may copy system closures to this machine (`ssh-ng://nix-ssh@…`), so that what
      the head has built or fetched does not cross the internet twice.
    '';
  };

  config = lib.mkIf cfg.enable {
    boot.kernel.sysctl = {
      # Unified memory: what is swapped out is the GPU's as well, and the load stalls.
      "vm.swappiness" = lib.mkDefault 0;
    };
    zramSwap.enable = lib.mkDefault false;

    nix.sshServe = lib.mkIf (cfg.closureKeys != [ ]) {
      enable = true;
      protocol = "ssh-ng";
      write = true;
      keys = cfg.closureKeys;
    };
    # Without signatures it accepts closures of trusted users only.
    nix.settings.trusted-users = lib.mkIf (cfg.closureKeys != [ ]) [ "nix-ssh" ];

    warnings = lib.optional swaps "services.glm53: MEM_SWAP_RESIDUE: this machine has swap. A load that runs into it takes many times as long, and zram takes memory from the engine. Remove swapDevices and zramSwap.";
  };
}
