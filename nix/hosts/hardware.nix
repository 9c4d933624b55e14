# The machine itself: kernel, driver and firmware of nixos-dgx-spark, and no more of it.
{ lib, ... }:
{
  hardware.dgx-spark.enable = true;

  # Servers have no use for them, and they hold memory.
  services.dgx-dashboard.enable = lib.mkForce false;
  virtualisation.podman.enable = lib.mkForce false;
  virtualisation.podman.dockerSocket.enable = lib.mkForce false;
  virtualisation.podman.dockerCompat = lib.mkForce false;
}
