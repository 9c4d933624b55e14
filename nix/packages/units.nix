# services/ where systemd.packages and systemd.tmpfiles.packages look for it, unchanged.
{ lib, runCommandLocal }:
let
  services = ../../services;
in
runCommandLocal "glm53-units"
  {
    meta = {
      description = "systemd units of the GLM-5.3-Flash appliance";
      license = lib.licenses.asl20;
      platforms = lib.platforms.linux;
    };
  }
  ''
    for file in ${services}/*; do
      name=''${file##*/}
      case $name in
        *.sysusers.conf) install -D -m 444 "$file" "$out/lib/sysusers.d/''${name/.sysusers/}" ;;
        *.tmpfiles.conf) install -D -m 444 "$file" "$out/lib/tmpfiles.d/''${name/.tmpfiles/}" ;;
        *) install -D -m 444 "$file" "$out/lib/systemd/system/$name" ;;
      esac
    done
  ''
