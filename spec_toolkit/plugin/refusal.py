"""How the plugin says no: an exception with one sentence, which the entry prints before it ends the process. Pure."""


class Refused(Exception):  # noqa: N818 - it is an answer, not a defect
    """Said instead of running half-patched."""

    def __init__(self, rule: str, where: str, found: str, *, why: str, remedy: str) -> None:
        self.rule, self.where, self.found, self.why, self.remedy = rule, where, found, why, remedy
        super().__init__(self.sentence())

    def sentence(self, process: str = "") -> str:
        """The form of every message of ours; `process` names the engine process that says it."""
        where = f"{self.where} (in {process})" if process else self.where
        return f"{where}: {self.found}; {self.why}. {self.remedy} [plugin.{self.rule}]"
