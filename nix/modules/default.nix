# The appliance on one of its machines. One concern a file; each can be imported by itself.
{
  imports = [
    ./core.nix
    ./rank.nix
    ./weights.nix
    ./watchdog.nix
    ./page.nix
    ./prepare.nix
    ./fabric.nix
    ./firewall.nix
    ./secrets.nix
    ./host.nix
  ];
}
