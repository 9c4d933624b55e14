"""What Nix renders for both machines, booted: units, drop-ins and configuration as on NixOS.

Needs nix and nixpkgs' library (docs/nix.md); what stands in the Nix store is said to be where the
bed has it. The rails' .link files are left out: the bed has no udev to name devices.
"""

import subprocess
import sys

import pytest
import yaml

from glm53ctl.demo.run import DemoFiles

from .bed import CHECKOUT, ENGINE, TOOL
from .serving import ServingPair, demo_settings

PLACES = (f"glm53ctl={TOOL}", f"glm53-engine={ENGINE}", "coreutils=/usr", "gcc-wrapper=/usr")

pytestmark = pytest.mark.engine


class RenderedPair(ServingPair):
    """The pair with the files that Nix rendered."""

    def install(self) -> None:
        """Put the rendered files and the secrets on both hosts; nothing is started."""
        given = self.folder / "given.yaml"
        given.write_text(yaml.safe_dump(self.settings))
        out = self.folder / "rendered"
        words = [word for place in PLACES for word in ("--place", place)]
        program = [sys.executable, str(CHECKOUT / "tests/nix/export.py"), str(out), *words]
        done = subprocess.run(
            [*program, "--settings", str(given)], capture_output=True, text=True, check=False
        )
        if "error: no nix" in done.stderr:  # neither the program nor its library is a must
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        for host in self.hosts:
            for folder in ("glm53", "systemd/system", "sysusers.d", "tmpfiles.d"):
                host.push(out / host.name / "etc" / folder, f"/etc/{folder}")
            host.exec("systemd-sysusers")
            host.exec("systemd-tmpfiles", "--create", check=False)  # 73: others' lines
            for name, secret in (("api-key", self.api_key), ("pair-token", self.token)):
                host.write(f"/etc/credstore/glm53.{name}", f"{secret}\n", mode=0o600)
            host.exec("systemctl", "daemon-reload")


def test_the_rendered_machines_boot_into_service(whole_bed, product, tmp_path):
    if reason := product.why_not():
        pytest.skip(reason)
    whole_bed.heal()
    settings = demo_settings(DemoFiles(whole_bed.state / "demo"), product)
    pair = RenderedPair(whole_bed, tmp_path, settings)
    pair.install()
    pair.bed.reboot(*pair.hosts)
    pair.until_ready()
    assert pair.ask() == pair.config.canary.expect
    for rank in (0, 1):
        assert "GLM53_CLOSURE=" in pair.unit(rank, "Environment")
