# JSON Schema (of pydantic) to NixOS options.
#
# Every setting may be null, which means left out: then the profile or the default decides, and
# nothing is written. Only what an item of a list must have (a node's name) has no default.
{ lib }:
freeformType: root:
let
  inherit (lib) mkOption types;

  resolve =
    node:
    if node ? "$ref" then
      root."$defs".${lib.last (lib.splitString "/" node."$ref")} // removeAttrs node [ "$ref" ]
    else
      node;

  isNull = node: (node.type or "") == "null";
  isSection = node: node ? properties;

  # What may be meant by `X | None` or `X`.
  variants = node: lib.filter (v: !isNull v) (map resolve (node.anyOf or [ node ]));

  # Python's \d is [0-9], and builtins.match anchors by itself.
  matches =
    pattern: text:
    builtins.match (lib.replaceStrings [ "\\d" "^" "$" ] [ "[0-9]" "" "" ] pattern) text != null;

  isIpv4 =
    text:
    let
      octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    in
    builtins.match "${octet}\\.${octet}\\.${octet}\\.${octet}" text != null;

  checks =
    node:
    lib.optional (node ? minimum) (v: v >= node.minimum)
    ++ lib.optional (node ? maximum) (v: v <= node.maximum)
    ++ lib.optional (node ? exclusiveMinimum) (v: v > node.exclusiveMinimum)
    ++ lib.optional (node ? minLength) (v: lib.stringLength v >= node.minLength)
    ++ lib.optional (node ? maxLength) (v: lib.stringLength v <= node.maxLength)
    ++ lib.optional (node ? minItems) (v: lib.length v >= node.minItems)
    ++ lib.optional (node ? maxItems) (v: lib.length v <= node.maxItems)
    ++ lib.optional (node ? pattern) (matches node.pattern)
    ++ lib.optional ((node.format or "") == "ipv4") isIpv4;

  bounded =
    node: base:
    if checks node == [ ] then
      base
    else
      types.addCheck base (v: lib.all (check: check v) (checks node));

  # The words of `glm53ctl config check`.
  called =
    description: type:
    type
    // {
      inherit description;
      descriptionClass = "noun";
    };

  text = called "text" types.str;
  oneOf =
    values:
    called "one of ${lib.concatMapStringsSep ", " toString values}" (types.enum values);

  bare =
    node:
    if node ? const then
      oneOf [ node.const ]
    else if node ? enum then
      oneOf node.enum
    else
      {
        boolean = types.bool;
        integer = types.int;
        number = types.number;
        string = types.str;
        array = types.listOf (typeOf (resolve (node.items or { })));
        object = if isSection node then sectionType node else types.attrsOf text;
      }
      .${node.type};

  typeOf =
    node:
    let
      found = map (v: bounded v (bare v)) (variants node);
      type = if lib.length found == 1 then lib.head found else types.oneOf found;
    in
    if node ? allowed then called node.allowed type else type;

  sectionType =
    node:
    types.submodule {
      # Unknown names are judged by a rule, which knows the nearest setting.
      inherit freeformType;
      options = optionsOf node;
    };

  said = value: if lib.isString value then "`${value}`" else "`${builtins.toJSON value}`";

  optionOf =
    required: node:
    let
      type = typeOf node;
      description =
        (node.description or "")
        + lib.optionalString (
          node ? default && node.default != null
        ) "\n\nLeft out: the profile's, else ${said node.default}.";
    in
    mkOption (
      {
        inherit description;
        type = if required then type else types.nullOr type;
      }
      // lib.optionalAttrs (!required) { default = null; }
      // lib.optionalAttrs (node ? examples) { example = lib.head node.examples; }
    );

  optionsOf =
    node:
    lib.mapAttrs (
      name: field:
      let
        inner = resolve field;
      in
      if isSection inner then
        mkOption {
          type = sectionType inner;
          default = { };
          description = inner.description;
        }
      else
        optionOf (lib.elem name (node.required or [ ]) && node != root) field
    ) node.properties;

  # Every setting with its default, as nested attributes.
  defaultsOf =
    node:
    lib.mapAttrs (
      _: field:
      let
        inner = resolve field;
      in
      if isSection inner then
        defaultsOf inner
      else
        inner.default or (if (inner.type or "") == "object" then { } else null)
    ) node.properties;
in
{
  type = sectionType root;
  defaults = defaultsOf root;
  nodeDefaults = defaultsOf root."$defs".Node;
}
