# Two machines of NixOS with the real modules, units, program and engine (on CPUs, with the tiny model
# of the demo): do they find each other, serve, and survive the loss of one?
{ lib, hostPkgs, ... }:
let
  inherit (hostPkgs.glm53) engine-cpu glm53ctl;

  model = hostPkgs.runCommandLocal "demo-model" { } ''
    ${glm53ctl.environment}/bin/python -c '
    import pathlib
    from glm53ctl.demo.model import make_model
    make_model(pathlib.Path("model"))
    '
    mv model $out
  '';

  name = "glm";

  machine = rank: {
    # Without the overlay: a test's nodes have the packages of the test.
    imports = [ ../modules ];

    virtualisation = {
      vlans = [ 1 ];
      cores = 2;
      memorySize = 6144; # MiB; a rank takes two while it starts
    };

    services.glm53 = {
      enable = true;
      inherit rank;
      engine = engine-cpu;
      settings = {
        profile = "demo";
        nodes = lib.zipListsWith (name: address: { inherit name address; }) [ "head" "worker" ] [
          "192.168.1.1"
          "192.168.1.2"
        ];
        weights.model_dir = "${model}";
        serve.model_name = name;
        # The model babbles: whatever it answers is an answer.
        canary = {
          expect = "";
          match = "contains";
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
    import json
    import shlex

    QUESTION = json.dumps({
        "model": "${name}",
        "messages": [{"role": "user", "content": "What keeps two ranks in step?"}],
        "max_tokens": 24,
        "temperature": 0,
    })

    def answer() -> str:
        head.wait_until_succeeds("glm53ctl status", timeout=900)
        body = head.succeed(
            "curl --fail --silent --max-time 120 --header 'Content-Type: application/json'"
            f" --data {shlex.quote(QUESTION)} 127.0.0.1:8888/v1/chat/completions"
        )
        message = json.loads(body)["choices"][0]["message"]
        said = str(message.get("reasoning")) + str(message.get("content"))
        assert len(said) > 20, body
        return said

    start_all()
    head.wait_for_unit("glm53.target")
    worker.wait_for_unit("glm53.target")
    first = answer()

    with subtest("a rank that is killed comes back, and the pair with it"):
        worker.succeed("systemctl kill --signal=KILL --kill-whom=main glm53-rank1")
        head.wait_until_fails("glm53ctl status", timeout=60)
        assert answer() == first

    with subtest("a machine that lost its power comes back, and the pair with it"):
        worker.crash()
        head.wait_until_fails("glm53ctl status", timeout=180)
        worker.start()
        assert answer() == first
  '';
}
