# Two machines of NixOS with the real modules, units and program, and a stand-in for the engine: do
# they find each other, serve, and survive the loss of one?
{ module }:
{ lib, hostPkgs, ... }:
let
  python = hostPkgs.python3;

  # tests/unit/supervise/fake_vllm.py, looking like an installed engine.
  engine =
    hostPkgs.runCommand "stand-in-engine"
      {
        passthru = { };
      }
      ''
        site=$out/lib/python3.12/site-packages/vllm-0.33.0.dist-info
        mkdir -p $out/bin $site
        printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n' > $site/METADATA
        printf '#!%s\n' ${python}/bin/python3 > $out/bin/vllm
        cat ${../../tests/unit/supervise/fake_vllm.py} >> $out/bin/vllm
        chmod +x $out/bin/vllm
        ln -s ${python}/bin/python3 $out/bin/python
      '';

  model = hostPkgs.runCommandLocal "stand-in-model" { } ''
    mkdir $out
    echo '{}' > $out/behaviour.json
  '';

  machine = rank: {
    imports = [ module ];
    virtualisation.vlans = [ 1 ];

    services.glm53 = {
      enable = true;
      inherit rank engine;
      settings = {
        profile = "demo";
        nodes = lib.zipListsWith (name: address: { inherit name address; }) [ "head" "worker" ] [
          "192.168.1.1"
          "192.168.1.2"
        ];
        weights.model_dir = "${model}";
        serve.model_name = "glm";
        memory = {
          floor_gib = 0.1;
          start_gib = 0.2;
        };
      };
    };

    # The test's own network stands in for the rails.
    networking.firewall.trustedInterfaces = [ "eth1" ];
    environment.etc."credstore/glm53.pair-token".text = "a token of a test, and no secret";
  };
in
{
  name = "glm53-pair";

  # In the order of their names, which is that of their addresses.
  nodes.head = machine 0;
  nodes.worker = machine 1;

  testScript = ''
    def serves() -> None:
        head.wait_until_succeeds("glm53ctl status", timeout=180)
        head.succeed("curl --fail --silent 127.0.0.1:8888/v1/models")

    start_all()
    head.wait_for_unit("glm53.target")
    worker.wait_for_unit("glm53.target")
    serves()

    with subtest("a rank that is killed comes back, and the pair with it"):
        worker.succeed("systemctl kill --signal=KILL --kill-whom=main glm53-rank1")
        head.wait_until_fails("glm53ctl status", timeout=30)
        serves()

    with subtest("a machine that lost its power comes back, and the pair with it"):
        worker.crash()
        head.wait_until_fails("glm53ctl status", timeout=180)
        worker.start()
        serves()
  '';
}
