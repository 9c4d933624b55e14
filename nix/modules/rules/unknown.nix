# Keys that no setting has, each with the nearest that one has.
{ lib }:
schema:
let
  definition = ref: schema."$defs".${lib.last (lib.splitString "/" ref)};
  sectionOf =
    node:
    if node ? "$ref" then
      definition node."$ref"
    else if node ? properties then
      node
    else
      null;
  itemOf = node: if node ? items then sectionOf node.items else null;

  # Every dotted path below a section.
  paths =
    section:
    lib.concatLists (
      lib.mapAttrsToList (
        name: node:
        let
          inner = sectionOf node;
        in
        if inner == null then [ name ] else map (path: "${name}.${path}") (paths inner)
      ) section.properties
    );
  all = paths schema;

  last = path: lib.last (lib.splitString "." path);
  distance =
    path: candidate:
    lib.min (lib.strings.levenshtein path candidate) (
      # The right name in the wrong section.
      1 + lib.strings.levenshtein (last path) (last candidate)
    );

  nearest =
    path:
    let
      ranked = lib.sort (a: b: a.far < b.far) (
        map (candidate: {
          inherit candidate;
          far = distance path candidate;
        }) all
      );
      best = lib.head ranked;
    in
    if best.far <= 4 then best.candidate else null;

  found =
    section: prefix: value:
    lib.concatLists (
      lib.mapAttrsToList (
        name: inner:
        let
          path = prefix + name;
          node = section.properties.${name};
          below = sectionOf node;
          item = itemOf node;
        in
        if !section.properties ? ${name} then
          lib.optional (inner != null) {
            inherit path;
            nearest = nearest path;
          }
        else if below != null then
          found below "${path}." inner
        else if item != null && lib.isList inner then
          lib.concatLists (lib.imap0 (place: found item "${path}.${toString place}.") inner)
        else
          [ ]
      ) value
    );
in
found schema ""
