"""Reproductions of papers for the page Figures: reports that exist already, and reports made from
the page.

The command ``flmc reproduce`` makes a report in a process of its own, so that it can be stopped
and does not slow the pages down.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from flmc.studio.work.scratch import at_the_end, new_directory

_FINISHED = re.compile(r"(?P<stage>.+): (?P<percent>\d+) %")
_PICTURE = re.compile(r"^!\[(?P<caption>.*)\]\((?P<file>[\w.-]+)\)$", re.MULTILINE)
REPORT = "report.md"
"""Name of the file with a report's text, in Markdown, in the report's directory."""


class Reports:
    """The reports that the page Figures can show: their directories, by the name of the paper that
    they reproduce."""

    def __init__(self) -> None:
        self.directories: dict[str, Path] = {}

    def offer(self, directory: Path) -> None:
        """Add the report in a directory that ``flmc reproduce`` wrote."""
        text = (directory / REPORT).read_text()
        paper = "wflmc" if "--paper wflmc" in text else "qflmc"
        self.directories[paper] = directory


REPORTS = Reports()
"""The reports that the pages of this process can show."""


class Reproduction:
    """A run of ``flmc reproduce`` in a process of its own, which makes a report on a paper.
    ``stage`` (a text) and ``share`` (0 to 1) are its progress; ``experiments`` is the number that
    the command's option ``--experiments`` gets."""

    def __init__(self, paper: str, experiments: int) -> None:
        self.paper, self.experiments = paper, experiments
        self.directory = new_directory("report")
        self.stage, self.share = "starting", 0.0
        self.error: str | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def command(self) -> str:
        """Command line ``flmc reproduce ...`` that makes the same report."""
        return f"flmc reproduce --paper {self.paper} --experiments {self.experiments}"

    async def conduct(self) -> bool:
        """Run ``flmc reproduce`` in a process, following its progress, and return whether it ended
        with a report; otherwise ``error`` says why."""
        words = self.command.split()[1:]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "flmc", *words, "--out", str(self.directory), "--json",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        forget = at_the_end(self.stop)
        assert self._process.stderr is not None
        last = ""
        # Progress comes on standard error. Its last line is kept, because it is the error message
        # if the command fails.
        async for line in self._process.stderr:
            last = line.decode(errors="replace").strip()
            progress = _FINISHED.match(last)
            if progress is not None:
                self.stage, self.share = progress["stage"], int(progress["percent"]) / 100
        code = await self._process.wait()
        forget()
        if code != 0:
            self.error = last.removeprefix("flmc: ") or "stopped"
            return False
        REPORTS.offer(self.directory)
        return True

    def stop(self) -> None:
        """End the process of the reproduction before it has finished; without a running process do
        nothing."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()


def parts_of_report(text: str) -> list[tuple[str, str]]:
    r"""A report in Markdown cut at its pictures, as pairs in order: ("", text) for prose, and (file
    name, caption) for a picture.

    Examples
    --------
    >>> from flmc.studio.work.reproduction import parts_of_report
    >>> parts_of_report("One.\n\n![a picture](a.png)\n\nTwo.")
    [('', 'One.'), ('a.png', 'a picture'), ('', 'Two.')]
    """
    parts: list[tuple[str, str]] = []
    place = 0
    for picture in _PICTURE.finditer(text):
        parts.append(("", text[place : picture.start()].strip()))
        parts.append((picture["file"], picture["caption"]))
        place = picture.end()
    parts.append(("", text[place:].strip()))
    return [part for part in parts if part != ("", "")]
