"""The one exception of the overlay: a sentence with a stable code."""


class OverlayError(RuntimeError):
    """The overlay cannot do its work rightly, so the engine must not start.

    `code` is stable and searchable (`EXL3_TENSOR`), `message` says what is wrong and where.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
