{ lib, ... }:
let
  isLoopback = lib.hasPrefix "127.";
  firstOctet = address: lib.toIntBase10 (lib.head (lib.splitString "." address));
  isMulticast = address: firstOctet address >= 224 && firstOctet address < 240;

  # Values that a list has more than once, each once.
  repeated = list: lib.unique (lib.filter (value: lib.count (other: other == value) list > 1) list);

  addresses = config: map (node: node.address) config.nodes;
  head = config: lib.head config.nodes;
  others = config: lib.tail config.nodes;

  ports =
    config:
    {
      "fabric.master_port" = config.fabric.master_port;
      "fabric.link_port" = config.fabric.link_port;
      "api.port" = config.api.port;
    }
    // lib.optionalAttrs (config.weights.source == "hub") {
      "weights.sync_port" = config.weights.sync_port;
    }
    // lib.optionalAttrs config.page.enabled {
      "page.port" = config.page.port;
    };
in
{
  same-names =
    config:
    map (name: "more than one node is called ${name}") (
      repeated (map (node: lib.toLower node.name) config.nodes)
    );

  same-addresses =
    config:
    lib.optionals (!lib.all isLoopback (addresses config)) (
      map (address: "more than one node has the address ${address}") (repeated (addresses config))
    );

  loopback-master =
    config:
    let
      remote = lib.filter (node: !isLoopback node.address) (others config);
    in
    lib.optional (isLoopback (head config).address && remote != [ ])
      "the head's address is ${(head config).address}, ${(lib.head remote).name} is another host";

  loopback-worker =
    config:
    lib.optionals (!isLoopback (head config).address) (
      map (node: "${node.name} has the address ${node.address}") (
        lib.filter (node: isLoopback node.address) (others config)
      )
    );

  no-host-address =
    config:
    map (node: "${node.name} has the address ${node.address}") (
      lib.filter (node: node.address == "0.0.0.0" || isMulticast node.address) config.nodes
    );

  same-ports =
    config:
    map (
      port:
      let
        names = lib.attrNames (lib.filterAttrs (_: number: number == port) (ports config));
      in
      "${lib.concatStringsSep " and " names} are both ${toString port}"
    ) (repeated (lib.attrValues (ports config)));

  beats =
    config:
    lib.optional (config.link.beat_seconds * 3 > config.link.silence_grace_seconds)
      "a beat every ${builtins.toJSON config.link.beat_seconds} s, silence after ${builtins.toJSON config.link.silence_grace_seconds} s";

  checkpoint-licence =
    config:
    lib.optional (
      config.weights.source == "hub" && !lib.elem "ShapleyMCG-1.0" config.licenses.accept
    ) "ShapleyMCG-1.0 is not accepted";

  revisions =
    config:
    let
      inherit (config) weights;
      said = {
        "weights.revision" = weights.revision;
        "weights.fallback_revision" = weights.fallback_revision;
        "weights.draft_revision" = weights.draft_revision;
      };
      moving = revision: revision != null && builtins.match "[0-9a-f]{40}" revision == null;
    in
    lib.optionals (weights.source == "hub") (
      map (path: "${path} is no commit") (lib.attrNames (lib.filterAttrs (_: moving) said))
    );

  secret-path =
    config:
    let
      files = {
        "api.key_file" = config.api.key_file;
        "link.token_file" = config.link.token_file;
        "weights.token_file" = config.weights.token_file;
      };
      relative = lib.filterAttrs (_: file: file != null && !lib.hasPrefix "/" file) files;
    in
    map (path: "${path} is no absolute path") (lib.attrNames relative);
}
