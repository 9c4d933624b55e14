"""Stand-ins for what a test machine has not: programs that say something else."""

from glm53ctl.facts.host import Unknown


class Programs:
    """Stands in for programs: what each prints, or why it does not; remembers what was asked."""

    def __init__(self, **said: str | Unknown) -> None:
        self.said, self.asked = said, []

    def __call__(self, argv):
        self.asked.append(list(argv))
        return self.said.get(argv[0], Unknown(unknown=f"{argv[0]} is not installed"))
