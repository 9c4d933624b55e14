# nix run .#glm53ctl, nix run .#deploy
{ pkgs }:
let
  inherit (pkgs) lib;

  # Both machines are built, copied to and switched before either rank is restarted: a pair of two
  # generations refuses to serve (PAIR_CLOSURE, PAIR_CONFIG). Switching restarts no weights either.
  deploy = pkgs.writeShellApplication {
    name = "deploy";
    runtimeInputs = [ pkgs.openssh ];
    text = ''
      if [ $# -lt 2 ]; then
        echo "usage: deploy HEAD WORKER [FLAKE] [switch|boot]   (ssh names, as root)" >&2
        exit 2
      fi
      rebuild=${lib.getExe pkgs.nixos-rebuild-ng}
      head=$1 worker=$2 flake=''${3:-.} action=''${4:-switch}

      for host in spark-head spark-worker; do
        "$rebuild" build --flake "$flake#$host"
      done
      "$rebuild" "$action" --flake "$flake#spark-worker" --target-host "root@$worker"
      "$rebuild" "$action" --flake "$flake#spark-head" --target-host "root@$head"

      if [ "$action" = switch ]; then
        # The user's half of a new driver is there at once, the kernel's after a boot: a rank that
        # starts in between finds no GPU.
        for host in "$worker" "$head"; do
          booted=$(ssh "root@$host" readlink -f /run/booted-system/kernel-modules)
          current=$(ssh "root@$host" readlink -f /run/current-system/kernel-modules)
          if [ "$booted" != "$current" ]; then
            echo "DEPLOY_REBOOT: $host runs another kernel or NVIDIA driver than it was switched to: reboot both machines." >&2
            exit 1
          fi
          # A device gets its name at boot: after the cable has moved there is none by the rail's name.
          booted=$(ssh "root@$host" 'cat /run/booted-system/etc/systemd/network/10-glm53-rail*.link 2>/dev/null || true')
          current=$(ssh "root@$host" 'cat /run/current-system/etc/systemd/network/10-glm53-rail*.link 2>/dev/null || true')
          if [ "$booted" != "$current" ]; then
            echo "DEPLOY_REBOOT: $host has other rails than it booted with: reboot both machines." >&2
            exit 1
          fi
        done
        for host in "$worker" "$head"; do
          ssh "root@$host" systemctl restart --no-block glm53.target glm53-weights.service
        done
        exec ssh -t "root@$head" glm53ctl status --watch
      fi
    '';
  };

  glm53ctl = {
    type = "app";
    program = lib.getExe pkgs.glm53.glm53ctl;
    meta.description = "The control program";
  };
in
{
  inherit glm53ctl;
  default = glm53ctl;
  deploy = {
    type = "app";
    program = lib.getExe deploy;
    meta.description = "Switch both machines to this flake, then restart the pair once";
  };
}
