# The six values that are an owner's, and modules. The template (`nix flake init -t`) has the same.
{
  # Who may log in as root, on both machines, and copy closures between them.
  sshKeys = [ ];

  # Read the licences of checkpoint (ShapleyMCG-1.0) and draft (CC-BY-NC-ND-4.0, non-commercial).
  # Nothing is fetched before the first is accepted; without the second MTP drafts.
  licenses = [ ];

  # vllm-recipe, or long: 1,048,576 tokens with quantised dense layers.
  profile = "vllm-recipe";

  # The fabric: head, worker. One port has two links; give them a network each.
  rails = [
    {
      path = "pci-0000:01:00.0"; # enp1s0f0np0
      addresses = [
        "10.0.9.1"
        "10.0.9.2"
      ];
    }
    {
      path = "pci-0002:01:00.0"; # enP2p1s0f0np0
      addresses = [
        "10.0.10.1"
        "10.0.10.2"
      ];
    }
  ];

  # The LAN's device on the head, where clients come from. [ ]: the API for the head itself only.
  lan = [ "enP7s7" ];

  # What the installer formats.
  disk = "/dev/nvme0n1";

  # Optional, of both machines: whatever else NixOS shall do, and settings (docs/owners.md).
  # modules = [ ./settings.nix ];
}
