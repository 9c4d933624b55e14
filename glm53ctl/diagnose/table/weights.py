"""Fetching, copying and reading weights."""

from glm53ctl.diagnose.signature import Confidence, Signature
from glm53ctl.findings import Severity

TABLE = (
    Signature(
        "HOST_SHM_FULL",
        ("No space left on device",),
        r"No space left on device.*/dev/shm|/dev/shm.*No space left on device",
        "the shared memory of the ranks (/dev/shm) is full.",
        "Remove what other programs left in /dev/shm, or raise its size.",
    ),
    Signature(
        "FETCH_DISK_FULL",
        ("No space left on device", "Not enough free disk space"),
        r"(?P<errno>\[Errno 28\]|os error 28|\(28\))|No space left on device|"
        r"Not enough free disk space",
        "the disk is full (Errno 28); the file that was being written is not complete.",
        "Make room, but keep *.incomplete: the fetch goes on from them. Then fetch again.",
    ),
    Signature(
        "CACHE_NOT_WRITABLE",
        ("Permission denied", "Read-only file system", "rsync error: "),
        r"rsync: .*(?P<why>Permission denied)|"
        r"(?P<why_>Permission denied|Read-only file system)(?: \(os error \d+\))?: "
        r"'(?P<path>/(?!dev/|etc/|proc/|sys/|usr/)[^']*)'",
        "the service may not write<: {path}> ({why}<, {end_code}>).",
        "Give it to the service's user: `chown -R` the directory that the line names.",
        also=(r"rsync error: .*\((?P<end_code>code \d+)\)",),
    ),
    Signature(
        "TIME_SKEW",
        ("not yet valid",),
        r"not yet valid",
        "the clock of this node is wrong: a certificate counts as not yet valid.",
        "Set the clock (`timedatectl`, or the head as its NTP server), then fetch again.",
    ),
    Signature(
        "TIME_SKEW",
        ("certificate has expired",),
        r"certificate has expired",
        "a certificate counts as expired: the clock of this node is ahead, or it has run out.",
        "Look at the clock first (`timedatectl`); if it is right, the server's owner has to renew "
        "its certificate.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "FETCH_GATED",
        ("GatedRepo", "Access to model", "Cannot access gated repo"),
        r"GatedRepo|Cannot access gated repo|Access to model (?P<repo>\S+) is restricted",
        "the repository asks for its terms to be accepted<: {repo}>.",
        "Accept them on its page, and give the token of that account in weights.token_file.",
    ),
    Signature(
        "FETCH_BAD_TOKEN",
        ("Invalid credentials in Authorization", "Invalid user token"),
        r"Invalid credentials in Authorization header|Invalid user token",
        "the hub refuses the token: HF_TOKEN, or the file of weights.token_file.",
        "Replace it, or take it away: public repositories need none.",
        severity=Severity.WARN,
    ),
    Signature(
        "FETCH_RATE_LIMITED",
        ("Too Many Requests",),
        # After a quote it is the access log of our own server, which is full.
        r"(?<!\" )429 (?:Client Error: )?Too Many Requests",
        "the hub limits requests (429); nothing is wrong with the files.",
        "Wait: the fetch goes on by itself. A token in weights.token_file raises the limit.",
        severity=Severity.WARN,
    ),
    Signature(
        "FETCH_REVISION_MISSING",
        ("RevisionNotFound", "Invalid rev id"),
        r"RevisionNotFound|Invalid rev id: (?P<rev>\w+)",
        "the pinned revision does not exist in that repository< ({rev})>.",
        "Correct weights.revision; another revision is never taken instead.",
    ),
    Signature(
        "FETCH_REPO_MISSING",
        ("RepositoryNotFound", "Repository Not Found"),
        r"RepositoryNotFound|Repository Not Found",
        "the repository does not exist, or is private.",
        "Correct weights.repo; weights.fallback_repo (MODEL_FALLBACK) is asked next.",
        severity=Severity.WARN,
    ),
    Signature(
        "CACHE_REVISION",
        ("LocalEntryNotFound", "outgoing traffic has been disabled"),
        r"LocalEntryNotFound|outgoing traffic has been disabled",
        "a file was looked up by repository name while HF_HUB_OFFLINE=1, and that revision is "
        "not here.",
        "Give the engine the snapshot path (weights.model_dir, weights.draft_dir).",
    ),
    Signature(
        "CACHE_TRUNCATED",
        ("SafetensorError", "MetadataIncompleteBuffer", "file not fully covered"),
        r"MetadataIncompleteBuffer|file not fully covered|InvalidHeader|HeaderTooLarge|"
        r"HeaderTooSmall|incomplete metadata",
        "a shard is cut short or no safetensors file at all.",
        "Find it with `glm53ctl weights verify` and fetch it again.",
    ),
    Signature(
        "WEIGHTS_UNREADABLE",
        ("Input/output error",),
        r"\[Errno 5\] Input/output error(?:: '(?P<path>[^']+)')?",
        "the disk cannot read a file< ({path})>.",
        "Look at the kernel log for the device's errors; replace the disk if they are there.",
        confidence=Confidence.LIKELY,
    ),
)
