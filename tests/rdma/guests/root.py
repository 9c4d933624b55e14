"""What a guest boots: Debian's kernel, and its packages as one archive that stays in memory.

A guest without a disk cannot break it: it is switched off like a lamp, and both boot one file.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pair.bed.root import SUITE, UNWANTED_DOCS, mirror
from pair.bed.run import run

BUILD_SECONDS = 1200.0

PACKAGES = (
    "ibverbs-providers",  # rxe among them
    "ibverbs-utils",
    "iproute2",
    "iputils-ping",
    "linux-image-amd64",  # the kernel for clouds has no rdma_rxe
    "perftest",
    "procps",
    "python3",  # not used itself: the tools' own Python needs its libraries
    "qemu-guest-agent",
    "rdma-core",
)

MODULES = (
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
    "crc32_generic",  # rxe asks for it by no dependency: without it no device can be made
)

# Without udev: devtmpfs makes the devices, and nothing renames them.
INIT = f"""\
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
modprobe -a {" ".join(MODULES)}
ulimit -l unlimited
ip link set lo up
until port=$(ls /dev/vport*p* 2>/dev/null); do sleep 0.05; done
exec qemu-ga --method=virtio-serial --path="$port" --statedir=/run
"""

UNUSED = ("/usr/lib/python3*", "/usr/bin/python3*", "/usr/bin/perl*", "/usr/lib/udev/hwdb.*")

# Kept are the modules that are loaded and what they need: a few of five thousand.
PACK = f"""\
#!/bin/sh
set -eu
kernel=$(ls /usr/lib/modules)
modprobe --set-version="$kernel" --show-depends --all {" ".join(MODULES)} |
    sed -n 's/^insmod //p' | xargs realpath | sort -u >/tmp/kept
find /usr/lib/modules -name '*.ko*' | sort | comm -23 - /tmp/kept | xargs rm
depmod "$kernel"
mv /boot/vmlinuz-* /kernel
rm -rf /boot/* /var/cache/* /var/lib/apt/* /var/lib/dpkg/info /tmp/kept {" ".join(UNUSED)}
find . -xdev ! -path ./pack ! -path ./kernel ! -path ./archive -print0 |
    cpio --quiet --null --create --format=newc >/archive
"""

EXCLUDED = (
    *(f"/usr/share/{name}/*" for name in UNWANTED_DOCS),
    # Would build an archive for a disk that no guest has, for half a minute.
    "/etc/kernel/postinst.d/initramfs-tools",
)


@dataclass(frozen=True)
class Root:
    """The two files that QEMU is given."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """Debian's kernel."""
        return self.folder / "kernel"

    @property
    def archive(self) -> Path:
        """Everything else, as an initramfs."""
        return self.folder / "archive"

    def build(self, say: Callable[[str], object] = print) -> bool:
        """Make both unless they are there and current; return whether they were made."""
        mark = self.folder / "stamp"
        if mark.exists() and mark.read_text() == _stamp():
            return False
        say(f"building a Debian {SUITE} guest in {self.folder}: about two minutes")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        scripts = {"init": INIT, "pack": PACK}
        for name, text in scripts.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        run(
            *("mmdebstrap", "--quiet", "--variant=minbase", "--format=null"),
            *(f"--dpkgopt=path-exclude={path}" for path in EXCLUDED),
            "--dpkgopt=force-unsafe-io",  # what is built is thrown away but for two files
            f"--include={','.join(PACKAGES)}",
            *(f"--customize-hook=upload {self.folder / name} /{name}" for name in scripts),
            '--customize-hook=chmod 755 "$1/init" "$1/pack"',
            '--customize-hook=chroot "$1" /pack',
            f"--customize-hook=download /kernel {self.kernel}",
            f"--customize-hook=download /archive {self.archive}",
            *(SUITE, "/dev/null", f"deb {mirror()} {SUITE} main"),
            timeout=BUILD_SECONDS,
        )
        mark.write_text(_stamp())
        return True


def _stamp() -> str:
    made_from = [SUITE, PACKAGES, EXCLUDED, INIT, PACK]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()
