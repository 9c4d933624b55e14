"""What systemd is told: readiness, status, more time, and that the pair is well."""

import sdnotify

EXTENSION_MARGIN_SECONDS = 30.0
"""Added to a stage's remaining time, so that the stage's own limit always fires first."""


class Notifier:
    """sd_notify for one supervisor. Without NOTIFY_SOCKET every call does nothing."""

    def __init__(self) -> None:
        self._systemd = sdnotify.SystemdNotifier()
        self._status: str | None = None

    def status(self, text: str) -> None:
        """Set the unit's status line: one, as the next would be another message to systemd."""
        text = " ".join(text.split())
        if text != self._status:
            self._status = text
            self._systemd.notify(f"STATUS={text}")

    def ready(self) -> None:
        """Say that the pair serves."""
        self._systemd.notify("READY=1")

    def stopping(self) -> None:
        """Say that the stop is under way."""
        self._systemd.notify("STOPPING=1")

    def extend(self, seconds: float) -> None:
        """Ask for `seconds` more until the start (or stop) counts as failed.

        A limit that is over is the margin still: a worker that has loaded waits for the head,
        whose limits then hold for both.
        """
        seconds = max(0.0, seconds) + EXTENSION_MARGIN_SECONDS
        self._systemd.notify(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._systemd.notify("WATCHDOG=1")
